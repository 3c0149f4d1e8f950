delete from memory_entries where agent_identity = %(theme)s and id = %(id)s
returning agent_identity as theme, id, home, target, content, created_at, updated_at, metadata
