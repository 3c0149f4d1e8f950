delete from memory_person_links
where agent_identity = any (%(themes)s::text[]) or person = any (%(themes)s::text[])
