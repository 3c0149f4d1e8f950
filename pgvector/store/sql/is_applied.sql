select exists (select 1 from memory_events where agent_identity = %(theme)s and event_id = %(event)s) as applied
