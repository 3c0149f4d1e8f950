-- The turns before and after each of some turns in its session, in their order; their times as those of hits. The session
-- is given as a bound and not as an equality, so that no other index than the one by session has their order.
select t.agent_identity, t.id as hit, n.id, n.role, n.content,
       greatest('0001-01-03', least('9999-12-29', n.ts)) as at, n.session_id,
       nullif(n.metadata, '{}') as metadata
from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
cross join lateral (
  select agent_identity, id, session_id, ts from conversations
  where agent_identity = k.agent_identity and id = k.id and (%(theme)s::text is null or agent_identity = %(theme)s)
  limit 1
) as t
cross join lateral (
  (select p.id, p.role, p.content, p.ts, p.session_id, p.metadata from conversations p
   where p.agent_identity = t.agent_identity and p.session_id >= t.session_id
     and (p.session_id, p.ts, p.id) < (t.session_id, t.ts, t.id) and (%(theme)s::text is null or p.agent_identity = %(theme)s)
   order by p.session_id desc, p.ts desc, p.id desc limit %(turns)s)
  union all
  (select f.id, f.role, f.content, f.ts, f.session_id, f.metadata from conversations f
   where f.agent_identity = t.agent_identity and f.session_id <= t.session_id
     and (f.session_id, f.ts, f.id) > (t.session_id, t.ts, t.id) and (%(theme)s::text is null or f.agent_identity = %(theme)s)
   order by f.session_id, f.ts, f.id limit %(turns)s)
) as n
order by t.agent_identity, t.id, n.ts, n.id
