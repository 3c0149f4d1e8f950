-- The entries of a theme whose vectors are nearest to each of these, by the graph index, which settings of the transaction
-- pin. A text with chunks is left out: its own vector is that of its beginning.
select probe.id as one, near.id as other, near.similarity
from memory_entries probe
cross join lateral (
  select id, 1 - (e.embedding <=> probe.embedding) as similarity
  from memory_entries e
  where e.agent_identity = %(theme)s and e.embedding is not null and e.expires_at is null
  order by e.embedding <=> probe.embedding
  limit %(near)s
) as near
where probe.agent_identity = %(theme)s and probe.id = any (%(ids)s::bigint[]) and probe.embedding is not null
  and near.id <> probe.id and near.similarity >= %(similarity)s and near.similarity <> 'NaN'
  and (select p.row_id from memory_entry_pieces p where p.agent_identity = %(theme)s and p.row_id = probe.id limit 1) is null
  and (select p.row_id from memory_entry_pieces p where p.agent_identity = %(theme)s and p.row_id = near.id limit 1) is null
