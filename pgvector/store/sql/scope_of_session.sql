-- The scope of the last fact of a session, if it is open.
select s.label
from (
  select scope from facts
  where agent_identity = %(theme)s and session_id = %(session_id)s
  order by written_at desc, id desc
  limit 1
) as f
join fact_scopes s on s.agent_identity = %(theme)s and s.label = f.scope and s.closed_at is null
