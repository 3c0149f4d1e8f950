update facts f
set superseded_by = l.successor
from unnest(%(ids)s::bigint[], %(successors)s::bigint[]) as l (id, successor)
where f.agent_identity = %(theme)s and f.id = l.id and f.status = 'superseded'
