delete from memory_person_links where agent_identity = %(account)s returning person
