-- The events that are applied.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'event_id', r.event_id, 'applied_at', r.applied_at)::text as row
from (
  select agent_identity as theme, 0 as id, event_id, applied_at
  from memory_events
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, event_id
