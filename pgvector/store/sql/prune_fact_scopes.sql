delete from fact_scopes
where (agent_identity, label) in (
  select agent_identity, label from fact_scopes s
  where closed_at < now() - make_interval(days => %(days)s)
    and not exists (
      select 1 from facts f
      where f.agent_identity = s.agent_identity and f.scope = s.label and f.status in ('active', 'cold'))
  limit 10000)
