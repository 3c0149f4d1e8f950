with gone as (
  delete from memory_agent_edges
  where agent_identity = %(source)s and id in (
    select id from memory_agent_edges
    where agent_identity = %(source)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
    limit %(limit)s)
  returning *
)
insert into memory_agent_edges
  (agent_identity, id, event_id, parent_session_id, child_session_id, task, result, at, metadata)
select %(destination)s, id, event_id, parent_session_id, child_session_id, task, result, at,
       (metadata - 'linked_account') || %(mark)s::jsonb
from gone
