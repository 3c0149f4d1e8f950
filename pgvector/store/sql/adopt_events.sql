-- A process of an earlier release applies events under the account, and another process may find them in its spool.
insert into memory_events (agent_identity, event_id, applied_at)
select %(person)s, event_id, applied_at from memory_events
where agent_identity = %(account)s and event_id = any (%(events)s::uuid[])
on conflict do nothing
