select agent_identity, id, '' as role, target || ': ' || content as content, null::text as answers,
       search is not null as worded
from facts
where embedding is null and status in ('active', 'cold') and id <> all (%(skip)s::bigint[])
order by id desc
limit %(limit)s
