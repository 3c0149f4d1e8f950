select agent_identity, id, target as role, content, null::text as answers, search is not null as worded
from memory_entries
where embedding is null and id <> all (%(skip)s::bigint[])
order by id desc
limit %(limit)s
