delete from memory_withdrawals
where (agent_identity, session_id, role, content_key) in (
  select agent_identity, session_id, role, content_key from memory_withdrawals
  where at < now() - make_interval(days => %(days)s)
  limit 10000)
