-- Delegated tasks whose turns are erased.
delete from memory_agent_edges
where agent_identity = %(theme)s and (task = any (%(texts)s::text[]) or result = any (%(texts)s::text[]))
