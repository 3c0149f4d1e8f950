-- The candidates and their neighbours in the session, each with its similarity and the id of the row before it, or its own
-- id where it is the first. Two rows are read before each candidate, so that the row before a neighbour is known as well,
-- and one after it. The columns are as those of a scan.
with candidates as materialized (
  select t.agent_identity, t.id, b.ids as before, a.id as after
  from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
  cross join lateral (
    -- With the limit each is looked up by its key: for some hundred keys the planner would read all sessions.
    select agent_identity, id, session_id, ts from conversations
    where agent_identity = k.agent_identity and id = k.id and (%(theme)s::text is null or agent_identity = %(theme)s)
    limit 1
  ) as t
  cross join lateral (
    select array(
      select p.id from conversations p
      where p.agent_identity = t.agent_identity and p.session_id = t.session_id and (p.ts, p.id) < (t.ts, t.id)
        and (%(theme)s::text is null or p.agent_identity = %(theme)s)
      order by p.ts desc, p.id desc limit 2) as ids
  ) as b
  left join lateral (
    select f.id from conversations f
    where f.agent_identity = t.agent_identity and f.session_id = t.session_id and (f.ts, f.id) > (t.ts, t.id)
      and (%(theme)s::text is null or f.agent_identity = %(theme)s)
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
       string_agg(int4send(coalesce(length(t.search), 0)), '') as lengths,
       string_agg(int8send(coalesce(f.previous, f.id)), '') as previous
from family f
join conversations t on t.agent_identity = f.agent_identity and t.id = f.id
where (%(theme)s::text is null or t.agent_identity = %(theme)s)
group by f.agent_identity
