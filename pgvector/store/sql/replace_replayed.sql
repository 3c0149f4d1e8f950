-- One row that a replay stored of this turn, which was said before it, goes with its question. Whose session it was, of
-- the one that was replayed and those before it, a replay does not tell. Of those with the same answer the one with the
-- same question goes, if there is one: hosts rewrite questions.
with told as (
  select id, session_id, ts from conversations a
  where agent_identity = %(theme)s and metadata ? 'replayed' and ts >= %(at)s::timestamptz - interval '2 seconds'
    and role = 'assistant' and content = %(content)s and metadata -> 'replayed' -> 'sessions' ? %(session)s::text
    and (metadata -> 'replayed' ->> 'at')::timestamptz >= %(at)s::timestamptz
  order by exists (
      select from conversations q
      where q.agent_identity = %(theme)s and q.session_id = a.session_id and q.role = 'user'
        and q.ts = a.ts - interval '1 microsecond' and q.content = %(question)s) desc, ts, id
  limit 1
)
delete from conversations as c
using told as t
where c.agent_identity = %(theme)s
  and (c.id = t.id
    or (c.session_id = t.session_id and c.role = 'user' and c.ts = t.ts - interval '1 microsecond'
        and c.metadata ? 'replayed'))
