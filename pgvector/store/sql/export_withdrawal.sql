-- Withdrawals of turns, which keep later replays from storing them.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'session_id', r.session_id, 'role', r.role, 'content_key', r.content_key, 'at', r.at,
         'standing', r.standing, 'sessions', r.sessions)::text as row
from (
  select agent_identity as theme, 0 as id, session_id, role, content_key, at, standing, sessions
  from memory_withdrawals
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, session_id, role, content_key
