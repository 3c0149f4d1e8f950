select coalesce(sum(chars), 0)::int as chars from facts where agent_identity = %(theme)s and status = 'active'
