delete from $table where agent_identity = %(source)s and id = any (%(ids)s::bigint[])
