-- Tasks that agents gave to child agents.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'event_id', r.event_id, 'parent_session_id', r.parent_session_id,
         'child_session_id', r.child_session_id, 'task', r.task, 'result', r.result,
         'at', r.at, 'metadata', r.metadata)::text as row
from (
  select agent_identity as theme, id, event_id, parent_session_id, child_session_id, task, result, at, metadata
  from memory_agent_edges
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
