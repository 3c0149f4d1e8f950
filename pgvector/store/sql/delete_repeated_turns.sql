-- A replay that a process of an earlier release stored under the account contains turns that the person has already: the
-- process counted the rows of the account alone. These are deleted with their questions. The others are marked, so that
-- they are not compared with rows that are moved before them.
with replayed as (
  select id, session_id, ts - interval '1 microsecond' as asked_at, row_number() over (partition by session_id, content order by ts, id) <= (
      select count(*)
      from (select distinct jsonb_path_query(r.metadata, '$.replayed.sessions[*]') #>> '{}' as session_id) as s
      join conversations d on d.agent_identity = %(destination)s and d.session_id = s.session_id
      where d.role = 'assistant' and d.content = r.content) as repeated
  from conversations r
  where agent_identity = %(source)s and role = 'assistant' and metadata ? 'replayed'
    and not metadata ? 'linked_account'
), marked as (
  update conversations c set metadata = c.metadata || %(mark)s::jsonb
  from replayed r
  where c.agent_identity = %(source)s and c.id = r.id and not r.repeated
)
delete from conversations as c
using replayed as r
where c.agent_identity = %(source)s and r.repeated
  and (c.id = r.id
    or (c.session_id = r.session_id and c.role = 'user' and c.ts = r.asked_at
        and c.metadata ? 'replayed'))
