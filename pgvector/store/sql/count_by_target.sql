select target, count(*) as entries, max(updated_at) as newest
from memory_entries
where agent_identity = %(theme)s
group by target
