select agent_identity, id, content, metadata, ts as at, role, session_id, '' as target
from conversations
where agent_identity = any (%(themes)s::text[]) and id = any (%(ids)s::bigint[])
