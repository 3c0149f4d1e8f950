-- Turns of the destination that were withdrawn under the source, where the destination does not know of it.
select distinct w.role, c.content, w.at, w.standing, w.sessions
from memory_withdrawals w
join conversations c
  on c.agent_identity = %(destination)s and c.session_id = w.session_id and c.role = w.role and c.ts <= w.at
  and content_key(c.content) = w.content_key
where w.agent_identity = %(source)s and not exists (
    select 1 from memory_withdrawals d
    where d.agent_identity = %(destination)s and d.session_id = w.session_id and d.role = w.role
      and d.content_key = w.content_key and d.at >= w.at)
