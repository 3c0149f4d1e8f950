-- As for rows; several pieces of one text may come, nearest first.
select agent_identity, id, 1 - (p.embedding <=> %(vector)b::halfvec) as score
from $pieces p
join $table t using (agent_identity)
where t.id = p.row_id
  and $scope
  and $narrow
order by p.embedding <=> %(vector)b::halfvec
limit %(limit)s
