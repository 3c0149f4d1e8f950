-- Fills in what a row lacks; a vector that somebody else stored meanwhile stays.
update $table as t
set embedding = r.embedding, search = coalesce(t.search, strip(to_tsvector('english', r.words)))
from unnest(%(themes)s::text[], %(ids)s::bigint[], %(embeddings)b::halfvec[], %(words)s::text[])
     as r (agent_identity, id, embedding, words)
where t.agent_identity = r.agent_identity and t.id = r.id and t.embedding is null
  and (%(theme)s::text is null or t.agent_identity = %(theme)s)
