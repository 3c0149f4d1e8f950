insert into memory_tombstones (agent_identity, home, target, content_key, at)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (home text, target text, content_key bytea, at timestamptz)
on conflict do nothing
returning 1
