-- Rows with vectors, spread over all of them.
select agent_identity, id, $text as content
from $table
where embedding is not null and $current
order by hashint8extended(id, 0)
limit %(limit)s
