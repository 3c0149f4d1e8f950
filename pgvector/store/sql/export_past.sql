-- Earlier versions of entries.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'entry_id', r.entry_id, 'home', r.home, 'target', r.target, 'content', r.content,
         'created_at', r.created_at, 'updated_at', r.updated_at, 'metadata', r.metadata, 'gone_at', r.gone_at, 'how', r.how,
         'session_id', r.session_id, 'replaced_by', r.replaced_by, 'expires_at', r.expires_at, 'tags', r.tags)::text as row
from (
  select agent_identity as theme, id, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how,
         session_id, replaced_by, expires_at, tags
  from memory_history
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
