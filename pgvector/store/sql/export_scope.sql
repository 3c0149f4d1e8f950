-- Scopes of facts.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'label', r.label, 'session_id', r.session_id, 'opened_at', r.opened_at,
         'written_at', r.written_at, 'heard_at', r.heard_at, 'closed_at', r.closed_at, 'turn', r.turn, 'silent', r.silent,
         'metadata', r.metadata)::text as row
from (
  select agent_identity as theme, 0 as id, label, session_id, opened_at, written_at, heard_at, closed_at, turn, silent, metadata
  from fact_scopes
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, label
