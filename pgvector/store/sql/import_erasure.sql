insert into memory_erasures as m (agent_identity, key, kind, at)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row), jsonb_to_record(g.row::jsonb) as r (key bytea, kind text, at timestamptz)
on conflict (agent_identity, key) do update set at = excluded.at where m.at < excluded.at
returning 1
