-- Rows with vectors of both models, spread over all of them.
select agent_identity, id, $text as content
from $table
where embedding is not null and embedding_next is not null and $current
order by hashint8extended(id, 0)
limit %(limit)s
