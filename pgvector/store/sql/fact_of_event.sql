select agent_identity as theme, id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at, uses,
       session_id, metadata
from facts
where agent_identity = %(theme)s and event_id = %(event)s
