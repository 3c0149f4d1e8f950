-- Delegated tasks with their results.
delete from memory_agent_edges
where (agent_identity, id) in (
  select agent_identity, id from memory_agent_edges t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and (%(session)s = '' or %(session)s in (parent_session_id, child_session_id))
    and (%(text)s = '' or task || ' ' || result ilike %(text)s)
  limit %(limit)s)
