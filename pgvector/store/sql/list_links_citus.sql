-- The links, with the rows that are still those of the account.
select l.person, l.agent_identity as account, l.linked_at, coalesce(e.rows, 0) as entries, coalesce(c.rows, 0) as turns,
       coalesce(f.rows, 0) as facts
from memory_person_links l
left join (
  select agent_identity, count(*) as rows from memory_entries
  where agent_identity in (select agent_identity from memory_person_links) group by agent_identity) as e on e.agent_identity = l.agent_identity
left join (
  select agent_identity, count(*) as rows from conversations
  where agent_identity in (select agent_identity from memory_person_links) group by agent_identity) as c on c.agent_identity = l.agent_identity
left join (
  select agent_identity, count(*) as rows from facts
  where agent_identity in (select agent_identity from memory_person_links) group by agent_identity) as f on f.agent_identity = l.agent_identity
where %(person)s::text is null or l.person = %(person)s
order by l.person, l.linked_at, l.agent_identity
limit %(limit)s
