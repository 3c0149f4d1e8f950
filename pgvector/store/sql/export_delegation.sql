-- Tasks that agents gave to child agents.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, id, event_id, parent_session_id, child_session_id, task, result, at, metadata
  from memory_agent_edges
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
