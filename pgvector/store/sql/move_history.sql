with gone as (
  delete from memory_history
  where agent_identity = %(source)s and id in (
    select id from memory_history
    where agent_identity = %(source)s and (%(account)s = '' or metadata ->> 'linked_account' = %(account)s)
    limit %(limit)s)
  returning *
)
insert into memory_history
  (agent_identity, id, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id,
   replaced_by, expires_at, tags)
select %(destination)s, id, entry_id, home, target, content, created_at, updated_at,
       (metadata - 'linked_account') || %(mark)s::jsonb, gone_at, how, session_id, replaced_by,
       expires_at, tags
from gone
