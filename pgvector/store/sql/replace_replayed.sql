-- Deletes one row that a replay stored for this turn, which was said before the replay, together with its question. The
-- row may be in the replayed session or in one before it. Of several rows with the same answer, one with the same question
-- comes first: hosts rewrite questions.
with replayed_answer as (
  select id, session_id, ts - interval '1 microsecond' as asked_at from conversations a
  where agent_identity = %(theme)s and metadata ? 'replayed' and ts >= %(at)s::timestamptz - interval '2 seconds'
    and role = 'assistant' and content = %(assistant)s and metadata -> 'replayed' -> 'sessions' ? %(session_id)s::text
    and (metadata -> 'replayed' ->> 'at')::timestamptz >= %(at)s::timestamptz
  order by exists (
      select 1 from conversations q
      where q.agent_identity = %(theme)s and q.session_id = a.session_id and q.role = 'user'
        and q.ts = a.ts - interval '1 microsecond' and q.content = %(user)s) desc, ts, id
  limit 1
)
delete from conversations as c
using replayed_answer as t
where c.agent_identity = %(theme)s
  and (c.id = t.id
    or (c.session_id = t.session_id and c.role = 'user' and c.ts = t.asked_at
        and c.metadata ? 'replayed'))
