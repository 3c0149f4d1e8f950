select agent_identity, id, target as role, content, null::text as answers
from memory_entries
where embedding is null and id <> all (%(skip)s::bigint[])
order by agent_identity, id
limit %(limit)s
