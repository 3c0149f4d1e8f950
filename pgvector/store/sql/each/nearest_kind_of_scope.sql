-- For scopes too large to compare every row. Settings of the transaction pin the graph index.
select agent_identity, id, 1 - (embedding <=> %(vector)b::halfvec) as score
from $table
where embedding is not null
  and $scope
  and $narrow
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
