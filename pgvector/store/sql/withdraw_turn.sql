-- Of the turns of some sessions with this content the newest are deleted, so that as many stay as the transcript still
-- has. The question of an answer, which is a microsecond older, is deleted with it. A turn without an answer is counted
-- apart from turns with the same question and an answer. Not materialized, they would be counted again for each row.
with stored as materialized (
  select id, ts - interval '1 microsecond' as asked_at, count(*) over () as times, row_number() over (order by ts desc, id desc) as place
  from conversations q
  where agent_identity = %(theme)s and session_id = any (%(sessions)s::text[]) and role = %(role)s
    and content = %(content)s and ts <= %(at)s
    and (%(role)s = 'assistant' or not exists (
      select 1 from conversations a
      where a.agent_identity = %(theme)s and a.session_id = q.session_id and a.role = 'assistant'
        and a.ts = q.ts + interval '1 microsecond'))
)
delete from conversations as c
using stored as s
where c.agent_identity = %(theme)s and c.session_id = any (%(sessions)s::text[])
  and s.place <= s.times - %(standing)s::int
  and (c.id = s.id or (%(role)s = 'assistant' and c.role = 'user' and c.ts = s.asked_at))
