select scope as label from facts
where agent_identity = %(theme)s and session_id = %(session_id)s
order by written_at desc, id desc
limit 1
