insert into $pieces (agent_identity, row_id, piece, embedding)
select %(destination)s, p.row_id, p.piece, p.embedding
from $pieces p
where p.agent_identity = %(source)s and p.row_id = any (%(ids)s::bigint[])
  and p.row_id in (select t.id from $table t where t.agent_identity = %(destination)s and t.id = any (%(ids)s::bigint[]))
on conflict do nothing
