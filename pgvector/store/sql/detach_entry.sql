-- An entry of a file that an agent asks to remember stays when the file loses it.
update memory_entries
set home = '', metadata = metadata || %(metadata)s::jsonb, updated_at = greatest(updated_at, %(at)s)
where agent_identity = %(theme)s and target = %(target)s and content_key(content) = content_key(%(content)s)
