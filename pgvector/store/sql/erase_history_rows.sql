delete from memory_history where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
