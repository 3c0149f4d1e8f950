-- An event that a process applied under one theme of a person is not applied again under another: a process of an earlier
-- release knows the account alone, and another process may find the event in its spool.
insert into memory_events (agent_identity, event_id, applied_at)
select %(destination)s, event_id, applied_at from memory_events
where agent_identity = %(source)s and event_id = any (%(events)s::uuid[])
on conflict do nothing
