insert into fact_scopes
  (agent_identity, label, session_id, opened_at, written_at, heard_at, closed_at, turn, silent, metadata)
select %(theme)s, r.*
from unnest(%(rows)s::text[]) as g (row),
     jsonb_to_record(g.row::jsonb) as r (label text, session_id text, opened_at timestamptz, written_at timestamptz,
       heard_at timestamptz, closed_at timestamptz, turn bigint, silent bigint, metadata jsonb)
on conflict do nothing
returning 1
