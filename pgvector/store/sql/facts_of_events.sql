select id, event_id from facts where agent_identity = %(theme)s and event_id = any (%(events)s::uuid[])
