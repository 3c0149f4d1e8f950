-- Of all themes: whose theme a session had is known to the hooks only.
select distinct session_id, agent_identity as theme
from conversations
where session_id = any(%(sessions)s)
