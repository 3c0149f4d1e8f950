-- As for rows.
select agent_identity as theme, row_id as id, embedding <=> %(vector)b::halfvec as distance
from $pieces
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
