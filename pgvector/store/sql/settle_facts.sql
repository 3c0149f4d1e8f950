-- Of two current facts of a kind, target and scope, one of which is about to be moved to the theme of the other, the older one
-- becomes a superseded one, and so does one whose target the newer one calls obsolete.
with moved as materialized (
  select agent_identity, id, kind, target, scope, written_at, event_id from facts
  where agent_identity = %(source)s and id = any (%(ids)s::bigint[]) and status in ('active', 'cold')
), there as materialized (
  select agent_identity, id, kind, target, scope, written_at, event_id from facts
  where agent_identity = %(destination)s and status in ('active', 'cold')
    and (target, scope) in (select target, scope from moved)
), pairs as materialized (
  select case when older then s.id else d.id end as id, case when older then d.id else s.id end as newer,
         case when older then s.agent_identity else d.agent_identity end as theme
  from moved s join there d using (target, scope)
  cross join lateral (select (s.written_at, s.event_id) < (d.written_at, d.event_id) as older) as o
  where s.kind = d.kind or case when older then d.kind else s.kind end = 'obs'
)
update facts f set status = 'superseded', superseded_by = pairs.newer, changed_at = now()
from pairs
where f.agent_identity = pairs.theme and f.agent_identity in (%(source)s, %(destination)s) and f.id = pairs.id
