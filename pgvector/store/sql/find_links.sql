select agent_identity as account, person from memory_person_links where agent_identity = any (%(themes)s::text[])
