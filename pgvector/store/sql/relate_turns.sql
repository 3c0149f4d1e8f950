-- The candidates and their neighbours in the session, each with its similarity and who stands before and after it.
with candidates as materialized (
  select t.agent_identity, t.id, t.session_id, t.ts
  from conversations t
  join unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
    on t.agent_identity = k.agent_identity and t.id = k.id
), family as (
  select agent_identity, id, session_id, ts from candidates
  union
  select n.agent_identity, n.id, n.session_id, n.ts
  from candidates c
  cross join lateral (
    (select p.agent_identity, p.id, p.session_id, p.ts from conversations p
     where p.agent_identity = c.agent_identity and p.session_id = c.session_id and (p.ts, p.id) < (c.ts, c.id)
     order by p.ts desc, p.id desc limit 1)
    union all
    (select f.agent_identity, f.id, f.session_id, f.ts from conversations f
     where f.agent_identity = c.agent_identity and f.session_id = c.session_id and (f.ts, f.id) > (c.ts, c.id)
     order by f.ts, f.id limit 1)
  ) as n
)
select f.agent_identity, f.id, 1 - (t.embedding <=> %(vector)s::halfvec) as similarity,
       (select p.id from conversations p
        where p.agent_identity = f.agent_identity and p.session_id = f.session_id and (p.ts, p.id) < (f.ts, f.id)
        order by p.ts desc, p.id desc limit 1) as previous
from family f
join conversations t on t.agent_identity = f.agent_identity and t.id = f.id
