-- Entries stand alone: the candidates with their similarity.
select t.agent_identity, t.id, 1 - (t.embedding <=> %(vector)b::halfvec) as similarity, null::bigint as previous
from memory_entries t
join unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
  on t.agent_identity = k.agent_identity and t.id = k.id
