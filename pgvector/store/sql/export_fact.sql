-- Facts and their history. Those that superseded others come before them.
select r.theme, r.id, to_jsonb(r)::text as row
from (
  select f.agent_identity as theme, f.id, f.event_id, f.kind, f.target, f.scope, f.content, f.status, s.event_id as successor,
         f.written_at, f.changed_at, f.used_at, f.uses, f.session_id, f.metadata
  from facts f left join facts s on s.agent_identity = f.agent_identity and s.id = f.superseded_by
  where (%(themes)s::text[] is null or f.agent_identity = any (%(themes)s::text[]))
) as r
order by theme, written_at desc, event_id desc
