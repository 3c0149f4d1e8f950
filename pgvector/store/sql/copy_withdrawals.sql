insert into memory_withdrawals as w (agent_identity, session_id, role, content_key, at, standing, sessions)
select %(destination)s, session_id, role, content_key, at, standing, sessions
from memory_withdrawals where agent_identity = %(source)s
on conflict (agent_identity, session_id, role, content_key) do update
set at = excluded.at, standing = excluded.standing, sessions = excluded.sessions
where w.at < excluded.at
