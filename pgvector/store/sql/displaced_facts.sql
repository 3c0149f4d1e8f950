-- The superseded facts in whose place these stand, the last written first. Those of the same target and scope are looked at.
select f.agent_identity as theme, f.id, f.kind, f.target, f.scope, f.content, f.status, f.superseded_by, f.written_at,
       f.changed_at, f.used_at, f.uses, f.session_id, f.metadata
from facts f
join facts c on c.agent_identity = %(theme)s and c.id = any (%(ids)s::bigint[])
            and c.target = f.target and c.scope = f.scope and c.id = f.superseded_by
where f.agent_identity = %(theme)s and f.status = 'superseded'
order by f.written_at desc, f.id desc
limit %(limit)s
