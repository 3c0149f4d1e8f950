-- Of the active facts of one target and scope that say the same, the newest stays.
with same as (
  select id, first_value(id) over (
           partition by target, scope, lower(content) order by written_at desc, id desc) as newest
  from facts
  where agent_identity = %(theme)s and status = 'active' and kind <> 'obs'
)
update facts f set status = 'superseded', superseded_by = same.newest, changed_at = %(at)s
from same
where f.agent_identity = %(theme)s and f.id = same.id and same.id <> same.newest
