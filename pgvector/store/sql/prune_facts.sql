delete from facts
where (agent_identity, id) in (
  select agent_identity, id from facts
  where status in ('superseded', 'archived') and changed_at < now() - make_interval(days => %(days)s)
  limit 10000)
