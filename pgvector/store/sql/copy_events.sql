-- An event that one of the themes has applied is not applied again when it comes to the other one.
insert into memory_events (agent_identity, event_id, applied_at)
select %(destination)s, event_id, applied_at from memory_events where agent_identity = %(source)s
on conflict do nothing
