-- Deletes the oldest turns that match, after a place in their order; those that another transaction works on are left to
-- the next pass. A delegation goes with its turn. What a replay could bring back is noted.
with chosen as materialized (
  select id, ts, ts - interval '1 microsecond' as asked_at from conversations
  where agent_identity = %(theme)s
    and (%(before)s::timestamptz is null or ts < %(before)s)
    and (%(role)s = '' or role = %(role)s)
    and (%(chars)s::int = 0 or length(content) > %(chars)s)
    and (%(ids)s::bigint[] is null or id = any (%(ids)s::bigint[]))
    and (ts, id) > (%(after)s::timestamptz, %(after_id)s::bigint)
  order by ts, id
  limit %(limit)s
  for update skip locked
), gone as (
  delete from conversations c using chosen
  where c.agent_identity = %(theme)s and c.id = chosen.id
  returning c.session_id, c.role, content_key(c.content) as key, c.ts, chosen.asked_at,
            c.metadata ->> 'delegated_to' as child
), noted as (
  insert into memory_pruned_turns as p (agent_identity, session_id, content_key, times)
  select %(theme)s, session_id, key, count(*) from gone where role = 'assistant'
  group by session_id, key order by session_id, key
  on conflict (agent_identity, session_id, content_key) do update set times = p.times + excluded.times, at = excluded.at
), delegations as (
  delete from memory_agent_edges e using gone
  where e.agent_identity = %(theme)s and e.parent_session_id = gone.session_id and e.child_session_id = gone.child
    and e.at in (gone.ts, gone.asked_at)
)
select (select count(*) from gone) as rows,
       (select ts::text from chosen order by ts desc, id desc limit 1) as after,
       (select id from chosen order by ts desc, id desc limit 1) as after_id
