-- The time after the lock: a later link has a later time, by which processes notice it.
insert into memory_person_links (agent_identity, person, linked_at) values (%(account)s, %(person)s, clock_timestamp())
