select id, agent_identity as theme, entry_id, home, target, content, metadata, gone_at, how, session_id, replaced_by,
       greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at,
       coalesce(tags, '{}') as tags,
       case when isfinite(expires_at) then greatest('0001-01-03', least('9999-12-29', expires_at)) end as expires_at
from memory_history
where (%(theme)s = '' or agent_identity = %(theme)s)
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or gone_at >= %(since)s)
  and (%(id)s::bigint is null or id = %(id)s)
  and (%(entries)s::bigint[] is null or entry_id = any (%(entries)s::bigint[]))
order by gone_at desc, id desc
limit %(limit)s
