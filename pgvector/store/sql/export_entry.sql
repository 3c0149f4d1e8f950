-- Entries, also expired ones that the upkeep has not deleted yet.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, id, home, target, content, created_at, updated_at, metadata, tags, expires_at, replaces
  from memory_entries
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, id
