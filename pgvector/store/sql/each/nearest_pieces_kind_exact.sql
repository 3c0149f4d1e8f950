-- The nearest chunk of each long text. A scope has few chunks compared with its rows.
select agent_identity, id, max(nullif(1 - (p.embedding <=> %(vector)b::halfvec), 'NaN')) as score
from $pieces p
join $table t using (agent_identity)
where t.id = p.row_id
  and $scope
  and $narrow
group by agent_identity, id
order by score desc nulls last, agent_identity, id
limit %(limit)s
