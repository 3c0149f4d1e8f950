insert into memory_tombstones as t (agent_identity, home, target, content_key, at)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (home text, target text, content_key bytea, at timestamptz)
on conflict (agent_identity, home, target, content_key) do update set at = excluded.at where t.at < excluded.at
returning 1
