-- A turn of a session adds to the silence of its open scopes. A number below the last one begins the count of turns anew.
update fact_scopes
set silent = silent + case when turn <= %(turn)s then %(turn)s - turn else 1 end, turn = %(turn)s, heard_at = %(at)s
where agent_identity = %(theme)s and session_id = %(session_id)s and closed_at is null and heard_at <= %(at)s
returning label, silent
