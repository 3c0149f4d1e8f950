-- Entries have no neighbours: the candidates with their similarity, in the columns that turns have.
select t.agent_identity,
       string_agg(int8send(t.id), '') as ids,
       string_agg(int8send(hashtextextended(t.id::text, hashtextextended(t.agent_identity, 0))), '') as sessions,
       string_agg(float8send(0), '') as times,
       string_agg(float8send(coalesce(1 - (t.embedding <=> %(vector)b::halfvec), 'NaN')), '') as cosines,
       string_agg(int4send(0), '') as lengths,
       string_agg(int8send(t.id), '') as previous
from memory_entries t
join unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
  on t.agent_identity = k.agent_identity and t.id = k.id
where (%(theme)s::text is null or t.agent_identity = %(theme)s)
group by t.agent_identity
