-- Of two current facts of a kind, target and scope, one of which is about to be moved to the theme of the other, the older one
-- becomes a superseded one.
with pairs as (
  select case when older then s.id else d.id end as id, case when older then d.id else s.id end as newer,
         case when older then s.agent_identity else d.agent_identity end as theme
  from facts s
  join facts d on d.agent_identity = %(destination)s and d.kind = s.kind and d.target = s.target and d.scope = s.scope
    and d.status in ('active', 'cold')
  cross join lateral (select (s.written_at, s.event_id) < (d.written_at, d.event_id) as older) as o
  where s.agent_identity = %(source)s and s.id = any (%(ids)s::bigint[]) and s.status in ('active', 'cold')
)
update facts f set status = 'superseded', superseded_by = pairs.newer, changed_at = now()
from pairs
where f.agent_identity = pairs.theme and f.agent_identity in (%(source)s, %(destination)s) and f.id = pairs.id
