insert into facts
  (agent_identity, id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at, uses, session_id,
   event_id, embedding, search, metadata)
select %(destination)s, id, kind, target, scope, content, status, superseded_by, written_at, changed_at, used_at, uses,
       session_id, event_id, embedding, search, (metadata - 'linked_account') || %(mark)s::jsonb
from facts
where agent_identity = %(source)s and id = any (%(ids)s::bigint[])
on conflict do nothing
