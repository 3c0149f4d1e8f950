-- Turns, each side a row.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, id, session_id, parent_session_id, role, content, ts, metadata
  from conversations
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
