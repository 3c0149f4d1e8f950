-- The row may be gone by now; one that is not yet stays until its pieces are in.
insert into $pieces (agent_identity, row_id, piece, embedding)
select t.agent_identity, t.id, r.piece, r.embedding
from unnest(%(themes)s::text[], %(ids)s::bigint[], %(pieces)s::smallint[], %(embeddings)b::halfvec[])
     as r (agent_identity, id, piece, embedding)
join $table t on t.agent_identity = r.agent_identity and t.id = r.id
where (%(theme)s::text is null or t.agent_identity = %(theme)s)
for key share of t
on conflict do nothing
