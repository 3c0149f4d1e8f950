insert into facts
  (agent_identity, kind, target, scope, content, status, superseded_by, written_at, changed_at, session_id, event_id,
   embedding, search, metadata)
values (%(theme)s, %(kind)s, %(target)s, %(scope)s, %(content)s, %(status)s, %(superseded_by)s, %(at)s, %(at)s,
        %(session_id)s, %(id)s, %(embedding)b::halfvec, strip(to_tsvector('english', %(words)s)), %(metadata)s::jsonb)
returning id
