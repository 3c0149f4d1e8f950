insert into conversations
  (agent_identity, id, session_id, parent_session_id, role, content, ts, embedding, search, metadata)
select %(destination)s, id, session_id, parent_session_id, role, content, ts, embedding, search,
       (metadata - 'linked_account') || %(mark)s::jsonb
from conversations
where agent_identity = %(source)s and id = any (%(ids)s::bigint[])
on conflict do nothing
