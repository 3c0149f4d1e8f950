-- The old names of a theme.
select agent_identity as theme from memory_renames where theme = %(theme)s order by agent_identity limit %(limit)s
