-- Ordering by an expression that no index serves keeps the plan exact: every row of the scope is compared.
-- The cosine of a row of zeros is NaN, which Postgres would sort before all numbers.
select agent_identity, id, nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN') as score
from $table
where embedding is not null
  and $scope
  and $narrow
order by score desc nulls last, agent_identity, id
limit %(limit)s
