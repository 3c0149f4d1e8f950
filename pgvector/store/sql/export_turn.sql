-- Turns, each side a row.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'session_id', r.session_id, 'parent_session_id', r.parent_session_id, 'role', r.role,
         'content', r.content, 'ts', r.ts, 'metadata', r.metadata)::text as row
from (
  select agent_identity as theme, id, session_id, parent_session_id, role, content, ts, metadata
  from conversations
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
