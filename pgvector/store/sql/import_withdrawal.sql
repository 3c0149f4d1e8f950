insert into memory_withdrawals as w (agent_identity, session_id, role, content_key, at, standing, sessions)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (session_id text, role text, content_key bytea, at timestamptz, standing int,
       sessions text[])
on conflict (agent_identity, session_id, role, content_key) do update
set at = excluded.at, standing = excluded.standing, sessions = excluded.sessions
where w.at < excluded.at
returning 1
