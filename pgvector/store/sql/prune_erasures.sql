delete from memory_erasures
where (agent_identity, key) in (
  select agent_identity, key from memory_erasures
  where at < now() - make_interval(days => %(days)s)
  limit 10000)
