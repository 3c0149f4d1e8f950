-- The same as by the graph index, comparing all entries of the theme: no index serves the order by an expression.
select probe.id as one, near.id as other, near.similarity
from memory_entries probe
cross join lateral (
  select id, 1 - (e.embedding <=> probe.embedding) as similarity
  from memory_entries e
  where e.agent_identity = %(theme)s and e.embedding is not null and e.expires_at is null
  order by similarity desc nulls last
  limit %(near)s
) as near
where probe.agent_identity = %(theme)s and probe.id = any (%(ids)s::bigint[]) and probe.embedding is not null
  and near.id <> probe.id and near.similarity >= %(similarity)s and near.similarity <> 'NaN'
  and (select p.row_id from memory_entry_pieces p where p.agent_identity = %(theme)s and p.row_id = probe.id limit 1) is null
  and (select p.row_id from memory_entry_pieces p where p.agent_identity = %(theme)s and p.row_id = near.id limit 1) is null
