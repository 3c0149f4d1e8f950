update facts set superseded_by = %(fact)s
where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
