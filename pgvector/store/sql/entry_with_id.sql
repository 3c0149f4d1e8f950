-- The entry with this id, else the one that has replaced it.
select $entry_columns
from memory_entries
where agent_identity = %(theme)s and (id = %(id)s or replaces @> array[%(id)s::bigint])
  and (expires_at is null or expires_at > now())
order by id = %(id)s desc, id desc
limit 1
