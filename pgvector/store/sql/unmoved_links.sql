-- Accounts with rows or withdrawals of their own, which a process of an earlier release has stored, or an interrupted move
-- has left.
select l.agent_identity as account, l.person
from memory_person_links l
where exists (select 1 from memory_entries e where e.agent_identity = l.agent_identity)
  or exists (select 1 from conversations c where c.agent_identity = l.agent_identity)
  or exists (select 1 from facts f where f.agent_identity = l.agent_identity)
  or exists (
    select 1 from memory_withdrawals w
    where w.agent_identity = l.agent_identity and not exists (
      select 1 from memory_withdrawals p
      where p.agent_identity = l.person and p.session_id = w.session_id and p.role = w.role
        and p.content_key = w.content_key and p.at >= w.at))
limit %(limit)s
