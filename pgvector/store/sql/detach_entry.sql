-- A line of a file that an agent asks to remember stays, whatever becomes of the file.
update memory_entries
set home = '', metadata = metadata || %(metadata)s::jsonb, updated_at = greatest(updated_at, %(at)s)
where agent_identity = %(theme)s and target = %(target)s and content_key(content) = content_key(%(content)s)
