insert into memory_pruned_turns as p (agent_identity, session_id, content_key, times, at)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (session_id text, content_key bytea, times bigint, at timestamptz)
on conflict (agent_identity, session_id, content_key) do update
set times = excluded.times, at = greatest(p.at, excluded.at) where p.times < excluded.times
returning 1
