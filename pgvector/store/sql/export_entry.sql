-- Entries, also expired ones that the upkeep has not deleted yet. The columns are named one by one: a whole row that comes from
-- several nodes of a cluster has lost their names.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'home', r.home, 'target', r.target, 'content', r.content, 'created_at', r.created_at,
         'updated_at', r.updated_at, 'metadata', r.metadata, 'tags', r.tags, 'expires_at', r.expires_at,
         'replaces', r.replaces)::text as row
from (
  select agent_identity as theme, id, home, target, content, created_at, updated_at, metadata, tags, expires_at, replaces
  from memory_entries
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
