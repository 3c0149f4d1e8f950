-- Which fact superseded which, of those with the target and the scope of a fact: a fact is superseded by one of them only.
select f.agent_identity as theme, f.id, f.superseded_by as successor
from facts f
join facts g on g.agent_identity = f.agent_identity and g.target = f.target and g.scope = f.scope
where g.id = %(id)s::bigint and (%(themes)s::text[] is null or g.agent_identity = any (%(themes)s::text[]))
