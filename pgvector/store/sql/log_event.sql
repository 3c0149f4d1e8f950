insert into memory_events (agent_identity, event_id)
values (%(theme)s, %(event)s)
on conflict do nothing
