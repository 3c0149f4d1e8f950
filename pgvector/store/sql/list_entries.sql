-- Highest ids first: what was stored or changed last.
select $entry_columns
from memory_entries
where agent_identity = %(theme)s and (%(target)s = '' or target = %(target)s)
  and (%(before)s::bigint is null or id < %(before)s)
  and (%(tags)s::text[] is null or tags && %(tags)s::text[])
  and (expires_at is null or expires_at > now())
order by id desc
limit %(limit)s
