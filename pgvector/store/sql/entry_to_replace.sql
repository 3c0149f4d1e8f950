-- The entry with this id, else the one that has replaced it, locked for its correction.
select id, target, content, metadata, tags, replaces,
       case when isfinite(expires_at) then greatest('0001-01-03', least('9999-12-29', expires_at)) end as expires_at,
       greatest('0001-01-03', least('9999-12-29', created_at)) as created_at,
       greatest('0001-01-03', least('9999-12-29', updated_at)) as updated_at
from memory_entries
where agent_identity = %(theme)s and (id = %(id)s or replaces @> array[%(id)s::bigint])
order by id = %(id)s desc, id desc
limit 1
for update
