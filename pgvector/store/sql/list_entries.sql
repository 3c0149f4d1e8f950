-- Highest ids first: what was stored or changed last.
select agent_identity as theme, id, home, target, content, created_at, updated_at, metadata
from memory_entries
where agent_identity = %(theme)s and (%(target)s = '' or target = %(target)s)
  and (%(before)s::bigint is null or id < %(before)s)
order by id desc
limit %(limit)s
