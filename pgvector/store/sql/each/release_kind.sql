-- Marks a row as released from quarantine, unless its text has changed meanwhile.
update $table set metadata = metadata || jsonb_build_object('released', %(mark)s::text)
where agent_identity = %(theme)s and id = %(id)s and content = %(content)s
