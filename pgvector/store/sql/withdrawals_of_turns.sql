-- The withdrawals of turns of which more are stored in the theme than may be, of some of its turns if their ids are given.
with asked as materialized (
  select role, content_key, at, standing, sessions from memory_withdrawals
  where agent_identity = %(theme)s and %(ids)s::bigint[] is null
  union
  select w.role, w.content_key, w.at, w.standing, w.sessions
  from conversations c
  join memory_withdrawals w
    on w.agent_identity = %(theme)s and w.session_id = c.session_id and w.role = c.role
    and w.content_key = content_key(c.content) and w.at >= c.ts
  where c.agent_identity = %(theme)s and c.id = any (%(ids)s::bigint[])
)
select a.role, c.content, a.at, a.standing, a.sessions
from asked a
cross join lateral unnest(a.sessions) as s (session_id)
join conversations c
  on c.agent_identity = %(theme)s and c.session_id = s.session_id and c.role = a.role and c.ts <= a.at
  and content_key(c.content) = a.content_key
group by a.role, c.content, a.at, a.standing, a.sessions
having count(*) > a.standing
