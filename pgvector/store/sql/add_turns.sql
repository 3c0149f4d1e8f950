-- The turns of one theme: the ledger decides which events are new, and only their rows go in.
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
  returning 1
)
select count(*) as fresh from fresh
