update memory_erasures m
set dropped = m.dropped + d.events, dropped_at = now()
from unnest(%(themes)s::text[], %(keys)s::bytea[], %(events)s::bigint[]) as d (theme, key, events)
where m.agent_identity = d.theme and m.key = d.key
