-- The facts that were used or written last stay active, as many as have room.
with kept as (
  select id, sum(chars) over (order by greatest(used_at, written_at) desc, id desc) as chars
  from facts
  where agent_identity = %(theme)s and status = 'active'
)
update facts f set status = 'cold', changed_at = %(at)s
from kept
where f.agent_identity = %(theme)s and f.id = kept.id and kept.chars > %(room)s
