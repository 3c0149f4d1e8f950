-- The rows of the scope among the nearest of the whole table, for scopes that are a large part of it. The graph index is
-- searched further than for the first rows of a scope, so it finds nearer ones.
select agent_identity, id, score
from (
  select *, nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as score
  from $table
  where embedding is not null and $current
  order by embedding <=> %(vector)b::halfvec
  limit %(seen)s
) as t
where $scope
  and $narrow
order by score desc nulls last, agent_identity, id
limit %(limit)s
