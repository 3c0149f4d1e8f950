-- The child agents of delegated tasks.
delete from memory_agents
where (agent_identity, session_id) in (
  select agent_identity, session_id from memory_agents t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and %(text)s = '' and (%(session)s = '' or session_id = %(session)s)
  limit %(limit)s)
