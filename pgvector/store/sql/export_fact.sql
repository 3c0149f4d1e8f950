-- Facts and their history. Those that superseded others come before them.
select r.theme, r.id, jsonb_build_object(
         'theme', r.theme, 'id', r.id, 'event_id', r.event_id, 'kind', r.kind, 'target', r.target, 'scope', r.scope,
         'content', r.content, 'status', r.status, 'successor', r.successor, 'written_at', r.written_at,
         'changed_at', r.changed_at, 'used_at', r.used_at, 'uses', r.uses,
         'session_id', r.session_id, 'metadata', r.metadata)::text as row
from (
  select f.agent_identity as theme, f.id, f.event_id, f.kind, f.target, f.scope, f.content, f.status, s.event_id as successor,
         f.written_at, f.changed_at, f.used_at, f.uses, f.session_id, f.metadata
  from facts f left join facts s on s.agent_identity = f.agent_identity and s.id = f.superseded_by
  where (%(themes)s::text[] is null or f.agent_identity = any (%(themes)s::text[]))
) as r
order by theme, written_at desc, event_id desc
