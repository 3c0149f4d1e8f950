-- Earlier versions of entries.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, id, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how,
         session_id, replaced_by, expires_at, tags
  from memory_history
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
