-- For scopes too large to compare every row: the caller pins the graph index by transaction-local settings.
select agent_identity, id, 1 - (embedding <=> %(vector)b::halfvec) as score
from $table
where embedding is not null
  and $scope
  and $narrow
order by embedding <=> %(vector)b::halfvec
limit %(limit)s
