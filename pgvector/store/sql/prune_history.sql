delete from memory_history
where (agent_identity, id) in (
  select agent_identity, id from memory_history
  where gone_at < now() - make_interval(days => %(days)s)
  limit 10000)
