(agent_identity = any (%(themes)s::text[])
    or (%(themes)s::text[] is null and (agent_identity = %(own)s or agent_identity !~ %(reserved)s)))
