delete from memory_history
where agent_identity = %(theme)s and content_key(content) = content_key(%(content)s)
