-- Removed entries, which keep older additions of their homes from storing them.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select agent_identity as theme, 0 as id, home, target, content_key, at
  from memory_tombstones
  where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as r
order by theme, home, target, content_key
