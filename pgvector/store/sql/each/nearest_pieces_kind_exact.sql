-- The nearest piece of each row. All pieces of the themes are compared, and then the rows of the best are looked up: of
-- all, when the scope may have few rows of the themes.
select agent_identity, id, score
from (
  select agent_identity, row_id, max(nullif(1 - (embedding <=> %(vector)b::halfvec), 'NaN')) as score
  from $pieces
  where $scope
  group by agent_identity, row_id
  order by score desc nulls last
  limit case when not %(narrow)s then 2 * %(limit)s end
) as p
join $table t using (agent_identity)
where t.id = p.row_id
  and (%(theme)s::text is null or t.agent_identity = %(theme)s)
  and $scope
  and $narrow
order by score desc nulls last, agent_identity, id
limit %(limit)s
