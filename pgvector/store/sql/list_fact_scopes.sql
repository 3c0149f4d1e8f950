select label, session_id, opened_at, written_at, silent
from fact_scopes
where agent_identity = %(theme)s and closed_at is null
order by written_at desc, label
limit %(limit)s
