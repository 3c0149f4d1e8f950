-- The history keeps them.
delete from memory_entries
where (agent_identity, id) in (
  select agent_identity, id from memory_entries where expires_at <= now() order by expires_at limit 10000)
