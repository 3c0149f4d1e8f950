-- Accounts with rows of their own, which an interrupted move has left.
select agent_identity as account, person
from memory_person_links
where agent_identity in (
  select agent_identity from memory_entries where agent_identity in (select agent_identity from memory_person_links) union
  select agent_identity from conversations where agent_identity in (select agent_identity from memory_person_links) union
  select agent_identity from facts where agent_identity in (select agent_identity from memory_person_links))
limit %(limit)s
