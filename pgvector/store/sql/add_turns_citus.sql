-- As add_turns, for the turns of one theme, which one node adds.
with fresh as (
  insert into memory_events (agent_identity, event_id)
  select %(theme)s, event from unnest(%(events)s::uuid[]) as event
  on conflict do nothing
  returning event_id
), added as (
  insert into conversations
    (agent_identity, session_id, parent_session_id, role, content, ts, embedding, search, metadata)
  select %(theme)s, r.session_id, r.parent_session_id, r.role, r.content, r.ts, r.embedding,
         strip(to_tsvector('english', r.words)), r.metadata::jsonb
  from unnest(%(row_events)s::uuid[], %(sessions)s::text[], %(parents)s::text[], %(roles)s::text[],
              %(contents)s::text[], %(times)s::timestamptz[], %(embeddings)b::halfvec[], %(words)s::text[],
              %(metadatas)s::text[]) with ordinality
       as r (event_id, session_id, parent_session_id, role, content, ts, embedding, words, metadata, ordinality)
  join fresh on fresh.event_id = r.event_id
  order by r.ordinality
  returning id
), began as (
  select min(at) - interval '2 seconds' as at from unnest(%(times)s::timestamptz[]) as at
)
select array(select %(theme)s from fresh) as fresh_themes,
  array(select event_id from fresh) as fresh,
  array(select id from added order by id) as ids,
  array(select %(theme)s
    where exists (select 1 from conversations
        where agent_identity = %(theme)s and metadata ? 'replayed' and ts >= (select at from began))
      or exists (select 1 from memory_withdrawals
        where agent_identity = %(theme)s and session_id = any (%(sessions)s::text[])
          and at >= (select at from began))) as disordered
