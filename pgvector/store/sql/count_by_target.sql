select target, count(*) as entries, greatest('0001-01-03', least('9999-12-29', max(updated_at))) as newest
from memory_entries
where agent_identity = %(theme)s and (expires_at is null or expires_at > now())
group by target
