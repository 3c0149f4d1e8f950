insert into memory_person_links (agent_identity, person) values (%(account)s, %(person)s)
