-- Of turns that are moved, those that a replay may have stored at their destination before.
select coalesce(q.content, '') as "user", a.content as assistant, a.session_id, a.ts as at
from conversations a
left join lateral (
  select content from conversations
  where agent_identity = %(source)s and session_id = a.session_id and role = 'user'
    and ts = a.ts - interval '1 microsecond'
  order by id limit 1) as q on true
where a.agent_identity = %(source)s and a.id = any (%(ids)s::bigint[]) and a.role = 'assistant'
  and not a.metadata ? 'replayed'
  and (a.session_id, a.content) in (
    select s.session_id #>> '{}', d.content from conversations d
    cross join lateral jsonb_path_query(d.metadata, '$.replayed.sessions[*]') as s (session_id)
    where d.agent_identity = %(destination)s and d.role = 'assistant' and d.metadata ? 'replayed')
