-- The rows nearest to a vector. Settings of the transaction pin the graph index.
select agent_identity as theme, id, embedding <=> %(vector)b::halfvec as distance
from $table
where embedding is not null and $current
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
