update $table as t
set search = strip(to_tsvector('english', r.words))
from unnest(%(themes)s::text[], %(ids)s::bigint[], %(words)s::text[]) as r (agent_identity, id, words)
where t.agent_identity = r.agent_identity and t.id = r.id and (%(theme)s::text is null or t.agent_identity = %(theme)s)
