-- The withdrawals of turns that are stored in the theme, of some of its turns if their ids are given.
select distinct w.role, c.content, w.at, w.standing, w.sessions
from memory_withdrawals w
join conversations c
  on c.agent_identity = %(theme)s and c.session_id = w.session_id and c.role = w.role and c.ts <= w.at
  and content_key(c.content) = w.content_key
where w.agent_identity = %(theme)s and (%(ids)s::bigint[] is null or c.id = any (%(ids)s::bigint[]))
