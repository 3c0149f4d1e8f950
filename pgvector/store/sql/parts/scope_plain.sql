agent_identity = any (%(themes)s::text[])
