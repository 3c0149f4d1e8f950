select agent_identity as theme, id, home, target, content, created_at, updated_at, metadata
from memory_entries
where agent_identity = %(theme)s and target = %(target)s and content_key(content) = content_key(%(content)s)
