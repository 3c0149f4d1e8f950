update facts
set status = 'superseded', changed_at = now()
where agent_identity = %(theme)s and id = any (%(ids)s::bigint[])
