-- A scope without a row is open: its row may have been moved with another account of the person.
select agent_identity as theme, id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at, uses,
       session_id, metadata
from facts f
where agent_identity = %(theme)s and status = 'active'
  and not exists (
    select 1 from fact_scopes s
    where s.agent_identity = %(theme)s and s.label = f.scope and s.closed_at is not null)
order by written_at desc, id desc
limit %(limit)s
