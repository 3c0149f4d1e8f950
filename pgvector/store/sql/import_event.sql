insert into memory_events (agent_identity, event_id, applied_at)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row), jsonb_to_record(g.row::jsonb) as r (event_id uuid, applied_at timestamptz)
on conflict do nothing
returning 1
