-- Adds what the trigger cannot know about the row that this transaction has just deleted.
update memory_history
set how = %(how)s, session_id = %(session_id)s, gone_at = %(at)s, replaced_by = %(replaced_by)s
where agent_identity = %(theme)s and entry_id = %(id)s and gone_at = now()
