insert into memory_withdrawals (agent_identity, session_id, role, content_key, at, standing, sessions)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (session_id text, role text, content_key bytea, at timestamptz, standing int,
       sessions text[])
on conflict do nothing
returning 1
