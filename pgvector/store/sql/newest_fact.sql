-- The newest fact of a kind, target and scope, or what made it obsolete, and whether it is newer than the given one.
select id, kind, content, status in ('active', 'cold') as current,
       (written_at, event_id) > (%(at)s::timestamptz, %(id)s::uuid) as newer
from facts
where agent_identity = %(theme)s and target = %(target)s and scope = %(scope)s and kind in (%(kind)s, 'obs')
order by written_at desc, event_id desc
limit 1
