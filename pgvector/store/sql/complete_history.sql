-- Adds what the trigger cannot know about the row that this transaction has just deleted.
select complete_memory_history(%(theme)s, %(id)s, %(how)s, %(session_id)s, %(at)s, %(replaced_by)s)
