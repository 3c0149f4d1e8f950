-- Scopes of facts.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, 0 as id, label, session_id, opened_at, written_at, heard_at, closed_at, turn, silent, metadata
  from fact_scopes
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, label
