-- The same without a function, which a node could not run.
select $entry_columns
from memory_entries
where agent_identity = any (%(themes)s::text[]) and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
  and target = %(target)s and content_key(content) = any (array(select content_key(c) from unnest(%(contents)s::text[]) as c))
  and (expires_at is null or expires_at > now())
