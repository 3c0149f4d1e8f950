delete from memory_pruned_turns
where (agent_identity, session_id, content_key) in (
  select agent_identity, session_id, content_key from memory_pruned_turns
  where at < now() - make_interval(days => %(days)s)
  limit 10000)
