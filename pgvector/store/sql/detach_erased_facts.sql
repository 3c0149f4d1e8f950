-- The facts that these have superseded, and that stay, keep no number of a fact that is gone. They have the same target and scope.
update facts set superseded_by = null
where agent_identity = %(theme)s and superseded_by = any (%(ids)s::bigint[])
  and (target, scope) in (select target, scope from facts where agent_identity = %(theme)s and id = any (%(ids)s::bigint[]))
