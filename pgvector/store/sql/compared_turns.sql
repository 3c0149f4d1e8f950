select a.id, '' as home, coalesce(a.metadata ->> 'origin', 'conversation') as source, a.session_id as part,
       concat_ws(' → ', q.content, a.content) as content, greatest('0001-01-03', least('9999-12-29', a.ts)) as created_at,
       greatest('0001-01-03', least('9999-12-29', a.ts)) as updated_at
from conversations a
left join lateral (
  select content from conversations
  where agent_identity = %(theme)s and session_id = a.session_id and role = 'user'
    and ts = a.ts - interval '1 microsecond'
  order by id limit 1) as q on true
where a.agent_identity = %(theme)s and a.id = any (%(ids)s::bigint[])
