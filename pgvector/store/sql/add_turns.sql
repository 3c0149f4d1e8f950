-- Turns of any themes. The ledger decides which events are new, and only their rows are inserted. In the themes that are
-- `disordered` some turns may be out of order: a stored replay may contain them, or turns of their sessions were withdrawn
-- later. The rows of a replay are up to two seconds older than the replay. `ids` are those of the inserted rows, in their
-- order.
with fresh as (
  insert into memory_events (agent_identity, event_id)
  select e.theme, e.event_id
  from unnest(%(event_themes)s::text[], %(events)s::uuid[]) with ordinality as e (theme, event_id, ordinality)
  order by e.ordinality
  on conflict do nothing
  returning agent_identity, event_id
), added as (
  insert into conversations
    (agent_identity, session_id, parent_session_id, role, content, ts, embedding, search, metadata)
  select r.theme, r.session_id, r.parent_session_id, r.role, r.content, r.ts, r.embedding,
         strip(to_tsvector('english', r.words)), r.metadata::jsonb
  from unnest(%(themes)s::text[], %(row_events)s::uuid[], %(sessions)s::text[], %(parents)s::text[], %(roles)s::text[],
              %(contents)s::text[], %(times)s::timestamptz[], %(embeddings)b::halfvec[], %(words)s::text[],
              %(metadatas)s::text[]) with ordinality
       as r (theme, event_id, session_id, parent_session_id, role, content, ts, embedding, words, metadata, ordinality)
  join fresh on fresh.agent_identity = r.theme and fresh.event_id = r.event_id
  order by r.ordinality
  returning id
), began as (
  select theme, min(at) - interval '2 seconds' as at
  from unnest(%(themes)s::text[], %(times)s::timestamptz[]) as t (theme, at)
  group by theme
), done as (
  select array_agg(agent_identity) as themes, array_agg(event_id) as events from fresh
)
select coalesce(done.themes, '{}') as fresh_themes, coalesce(done.events, '{}') as fresh,
  array(select id from added order by id) as ids,
  array(select b.theme from began b
    where exists (select 1 from conversations c
        where c.agent_identity = b.theme and c.metadata ? 'replayed' and c.ts >= b.at)
      or exists (select 1 from memory_withdrawals w
        where w.agent_identity = b.theme and w.session_id = any (%(sessions)s::text[]) and w.at >= b.at)) as disordered
from done
