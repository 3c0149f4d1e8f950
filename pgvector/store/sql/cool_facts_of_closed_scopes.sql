update facts f set status = 'cold', changed_at = %(at)s
where f.agent_identity = %(theme)s and f.status = 'active'
  and exists (
    select 1 from fact_scopes s
    where s.agent_identity = %(theme)s and s.label = f.scope and s.closed_at is not null)
