delete from memory_entries where agent_identity = %(theme)s and id = %(id)s
returning $entry_columns
