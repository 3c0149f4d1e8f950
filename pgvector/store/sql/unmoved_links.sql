-- Accounts with rows of their own, which a process of an earlier release has stored.
select l.agent_identity as account, l.person
from memory_person_links l
where exists (select from memory_entries e where e.agent_identity = l.agent_identity)
  or exists (select from conversations c where c.agent_identity = l.agent_identity)
limit %(limit)s
