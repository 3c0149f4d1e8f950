delete from memory_words where agent_identity = %(theme)s
