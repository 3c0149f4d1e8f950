-- As for rows. Several chunks of one text can be among them.
select agent_identity, id, 1 - (p.embedding <=> %(vector)b::halfvec) as score
from $pieces p
join $table t using (agent_identity)
where t.id = p.row_id
  and $scope
  and $narrow
order by p.embedding <=> %(vector)b::halfvec
limit %(limit)s
