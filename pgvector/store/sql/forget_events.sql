delete from memory_events where agent_identity = %(theme)s and event_id = any(%(events)s::uuid[])
