-- An entry that the destination has already stays as it is there.
insert into memory_entries
  (agent_identity, id, home, target, content, embedding, search, created_at, updated_at, metadata,
   expires_at, tags, replaces)
select %(destination)s, id, home, target, content, embedding, search, created_at, updated_at,
       (metadata - 'linked_account') || %(mark)s::jsonb, expires_at, tags, replaces
from memory_entries
where agent_identity = %(source)s and id = any (%(ids)s::bigint[])
on conflict do nothing
