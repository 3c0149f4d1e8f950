update facts
set status = %(status)s, written_at = %(at)s, changed_at = %(at)s, event_id = %(id)s, session_id = %(session_id)s
where agent_identity = %(theme)s and id = %(fact)s
