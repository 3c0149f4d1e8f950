delete from memory_events
where (agent_identity, event_id) in (
  select agent_identity, event_id from memory_events
  where applied_at < now() - make_interval(days => %(days)s)
  limit 10000)
