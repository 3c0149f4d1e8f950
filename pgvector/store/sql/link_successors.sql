-- Facts of an archive and those that superseded them, by their events.
update facts f
set superseded_by = s.id
from unnest(%(events)s::uuid[], %(successors)s::uuid[]) as l (event_id, successor)
join facts s on s.agent_identity = %(theme)s and s.event_id = l.successor
where f.agent_identity = %(theme)s and f.event_id = l.event_id and f.status = 'superseded' and f.superseded_by is null
