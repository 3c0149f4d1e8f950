select count(*)::int as facts
from facts f
where agent_identity = %(theme)s and status = 'active'
  and not exists (
    select 1 from fact_scopes s
    where s.agent_identity = %(theme)s and s.label = f.scope and s.closed_at is not null)
