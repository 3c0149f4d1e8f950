select f.id, f.kind, f.target, f.scope, f.content, f.written_at
from facts f
join unnest(%(kinds)s::text[], %(targets)s::text[], %(scopes)s::text[]) as k (kind, target, scope)
  on f.kind = k.kind and f.target = k.target and f.scope = k.scope
where f.agent_identity = %(theme)s and f.status in ('active', 'cold')
