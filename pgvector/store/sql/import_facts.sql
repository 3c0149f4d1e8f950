insert into facts
  (agent_identity, event_id, kind, target, scope, content, status, written_at, changed_at, used_at, uses, session_id,
   embedding, search, metadata)
select %(theme)s, g.event_id, g.kind, g.target, g.scope, g.content, g.status, g.written_at, g.changed_at, g.used_at, g.uses,
       g.session_id, g.embedding, strip(to_tsvector('english', g.words)), %(metadata)s::jsonb || g.metadata::jsonb
from unnest(%(events)s::uuid[], %(kinds)s::text[], %(targets)s::text[], %(scopes)s::text[], %(contents)s::text[],
            %(statuses)s::text[], %(written)s::timestamptz[], %(changed)s::timestamptz[],
            %(used)s::timestamptz[], %(uses)s::int[], %(sessions)s::text[], %(embeddings)b::halfvec[], %(words)s::text[],
            %(metadatas)s::text[])
  as g (event_id, kind, target, scope, content, status, written_at, changed_at, used_at, uses, session_id, embedding,
        words, metadata)
returning id, event_id
