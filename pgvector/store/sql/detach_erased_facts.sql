-- The facts that these have superseded, and that stay, keep no number of a fact that is gone.
update facts set superseded_by = null
where agent_identity = %(theme)s and superseded_by = any (%(ids)s::bigint[])
