select agent_identity, id, content, metadata, updated_at as at, '' as role, '' as session_id, target
from memory_entries
where agent_identity = any (%(themes)s::text[]) and id = any (%(ids)s::bigint[])
