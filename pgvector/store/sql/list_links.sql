-- The links, with the rows that are still those of the account because a process of an earlier release stored them.
select l.person, l.agent_identity as account, l.linked_at,
       (select count(*) from memory_entries e where e.agent_identity = l.agent_identity) as entries,
       (select count(*) from conversations c where c.agent_identity = l.agent_identity) as turns,
       (select count(*) from facts f where f.agent_identity = l.agent_identity) as facts
from memory_person_links l
where %(person)s::text is null or l.person = %(person)s
order by l.person, l.linked_at, l.agent_identity
limit %(limit)s
