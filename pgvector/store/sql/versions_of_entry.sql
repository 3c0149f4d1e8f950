-- The ids under which an entry was known: its own, and those before its corrections.
select coalesce(array_agg(distinct number), '{}') as ids
from (
  select unnest(id || replaces) as number from memory_entries
  where (id = %(id)s::bigint or replaces @> array[%(id)s::bigint])
    and (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
) as known
