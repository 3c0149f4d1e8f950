select agent_identity as theme from memory_entries
where id = %(id)s and (expires_at is null or expires_at > now())
order by 1
limit 10
