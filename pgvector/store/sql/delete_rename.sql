delete from memory_renames where agent_identity = %(old)s returning theme
