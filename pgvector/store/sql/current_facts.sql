-- The current facts of all kinds of these targets and scopes.
select f.id, f.kind, f.target, f.scope, f.content, f.written_at, f.event_id
from facts f
join (select distinct * from unnest(%(targets)s::text[], %(scopes)s::text[])) as k (target, scope)
  on f.target = k.target and f.scope = k.scope
where f.agent_identity = %(theme)s and f.status in ('active', 'cold')
