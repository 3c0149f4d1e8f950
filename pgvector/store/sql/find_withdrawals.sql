-- The withdrawals of turns like these that are newer than the turns.
select distinct w.role, r.content, w.at, w.standing, w.sessions
from unnest(%(sessions)s::text[], %(roles)s::text[], %(contents)s::text[], %(times)s::timestamptz[])
     as r (session_id, role, content, ts)
join memory_withdrawals w
  on w.agent_identity = %(theme)s and w.session_id = r.session_id and w.role = r.role
  and w.content_key = content_key(r.content) and w.at >= r.ts
