-- The candidates and their neighbours in the session, each with its similarity and who stands before it, else itself.
-- Who stands before a neighbour is known from the same look: two rows are read before each candidate, and one after it.
-- The numbers of a theme are one array of bytes a column, as those of a scan.
with candidates as materialized (
  select t.agent_identity, t.id, b.ids as before, a.id as after
  from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
  cross join lateral (
    -- The bound keeps it to one look by the key for each: for some hundred keys the planner would read all sessions.
    select agent_identity, id, session_id, ts from conversations
    where agent_identity = k.agent_identity and id = k.id limit 1
  ) as t
  cross join lateral (
    select array(
      select p.id from conversations p
      where p.agent_identity = t.agent_identity and p.session_id = t.session_id and (p.ts, p.id) < (t.ts, t.id)
      order by p.ts desc, p.id desc limit 2) as ids
  ) as b
  left join lateral (
    select f.id from conversations f
    where f.agent_identity = t.agent_identity and f.session_id = t.session_id and (f.ts, f.id) > (t.ts, t.id)
    order by f.ts, f.id limit 1
  ) as a on true
), family as (
  select agent_identity, id, before[1] as previous from candidates
  union
  select agent_identity, before[1], before[2] from candidates where before[1] is not null
  union
  select agent_identity, after, id from candidates where after is not null
)
select f.agent_identity,
       string_agg(int8send(f.id), '') as ids,
       string_agg(int8send(hashtextextended(t.session_id, hashtextextended(f.agent_identity, 0))), '') as sessions,
       string_agg(float8send(date_part('epoch', t.ts)), '') as times,
       string_agg(float8send(coalesce(1 - (t.embedding <=> %(vector)b::halfvec), 'NaN')), '') as cosines,
       string_agg(int8send(coalesce(f.previous, f.id)), '') as previous
from family f
join conversations t on t.agent_identity = f.agent_identity and t.id = f.id
group by f.agent_identity
