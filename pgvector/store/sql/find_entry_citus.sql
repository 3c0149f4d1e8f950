-- The same without a function, which a node could not run.
select agent_identity as theme, id
from memory_entries
where agent_identity = any (%(themes)s::text[]) and (agent_identity = %(theme)s or (home = %(home)s and home <> ''))
  and target = %(target)s and content_key(content) = content_key(%(content)s)
  and (updated_at <= %(at)s or home <> %(home)s or home = '')
  and metadata ->> 'origin' is distinct from 'remember'
order by home = %(home)s desc, agent_identity = %(theme)s desc, created_at
limit 1
