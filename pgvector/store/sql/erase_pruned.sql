-- Notes of pruned turns, by the hash of their texts.
delete from memory_pruned_turns
where (agent_identity, session_id, content_key) in (
  select agent_identity, session_id, content_key from memory_pruned_turns t
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and %(ids)s::bigint[] is null
  and %(text)s = '' and (%(session)s = '' or session_id = %(session)s)
  limit %(limit)s)
