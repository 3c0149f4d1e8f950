delete from $pieces where agent_identity = %(theme)s and row_id = any (%(ids)s::bigint[])
