insert into memory_withdrawals as w (agent_identity, session_id, role, content_key, at, standing, sessions)
select %(theme)s, session, %(role)s, content_key(%(content)s), %(at)s, %(standing)s, %(sessions)s
from (select distinct unnest(%(sessions)s::text[])) as said (session)
on conflict (agent_identity, session_id, role, content_key) do update
set at = excluded.at, standing = excluded.standing, sessions = excluded.sessions
where w.at < excluded.at
-- The number of changed rows: without this a cluster tells how many it was given.
returning 1
