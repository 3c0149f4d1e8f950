insert into memory_entries 
  (agent_identity, home, target, content, search, created_at, updated_at, metadata, tags, expires_at, replaces)
select agent_identity, home, target, content, strip(to_tsvector('english', %(words)s)), created_at, now(), %(metadata)s::jsonb,
       tags, case when expires_at > now() then expires_at end, %(replaces)s::bigint[]
from memory_history
where agent_identity = %(theme)s and id = %(id)s
on conflict do nothing
returning id
