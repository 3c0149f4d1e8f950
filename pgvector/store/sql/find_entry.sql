-- The one row with exactly this content: in the theme itself, else in another theme of the same home.
select agent_identity, id, created_at
from memory_entries
where target = %(target)s and content_key(content) = content_key(%(content)s)
  and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
order by agent_identity = %(theme)s desc, created_at
limit 1
for update
