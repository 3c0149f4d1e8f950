select count(agent_identity) as links from memory_person_links
