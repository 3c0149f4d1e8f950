delete from memory_tombstones
where (agent_identity, home, target, content_key) in (
  select agent_identity, home, target, content_key from memory_tombstones
  where at < now() - make_interval(days => %(days)s)
  limit 10000)
