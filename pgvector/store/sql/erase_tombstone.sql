delete from memory_tombstones
where agent_identity = %(theme)s and content_key = content_key(%(content)s)
