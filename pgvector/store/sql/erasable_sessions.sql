-- A page of the sessions that have turns in these themes.
select distinct agent_identity as theme, session_id as session
from conversations
where (%(themes)s::text[] is null or agent_identity = any (%(themes)s::text[]))
  and (%(session)s = '' or session_id = %(session)s)
  and (agent_identity, session_id) > (%(after_theme)s, %(after_session)s)
order by agent_identity, session_id
limit %(limit)s
