insert into $pieces (agent_identity, row_id, piece, embedding)
select %(destination)s, p.row_id, p.piece, p.embedding
from $pieces p
where p.agent_identity = %(source)s and p.row_id = any (%(ids)s::bigint[])
  and exists (select from $table t where t.agent_identity = %(destination)s and t.id = p.row_id)
on conflict do nothing
