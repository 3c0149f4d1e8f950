select $entry_columns,
       entry_id, gone_at, how, session_id, replaced_by
from memory_history
where (%(theme)s = '' or agent_identity = %(theme)s)
  and (%(target)s = '' or target = %(target)s)
  and (%(since)s::timestamptz is null or gone_at >= %(since)s)
  and (%(id)s::bigint is null or id = %(id)s)
  and (%(entries)s::bigint[] is null or entry_id = any (%(entries)s::bigint[]))
order by gone_at desc, id desc
limit %(limit)s
