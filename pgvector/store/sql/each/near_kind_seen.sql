-- The rows of the scope among the nearest of all, for scopes that are a good part of the table: the graph index is then
-- searched alike for all of them, and further than the first rows of a scope would take it.
select agent_identity, id, score
from (
  select *, nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as score
  from $table
  where embedding is not null
  order by embedding <=> %(vector)b::halfvec
  limit %(seen)s
) as t
where $scope
  and $narrow
order by score desc nulls last, agent_identity, id
limit %(limit)s
