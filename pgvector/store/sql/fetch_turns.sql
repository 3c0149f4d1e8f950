-- Key by key: for two lists the planner may read a whole theme, when it does not know how large that is. Times that
-- Python does not have, which come by psql, are told as the nearest that it has. Metadata are mostly empty, and twenty
-- empty documents take as long to parse as to find the rows.
select t.agent_identity, t.id, t.content, nullif(t.metadata, '{}') as metadata,
       greatest('0001-01-03', least('9999-12-29', t.ts)) as at, t.role, t.session_id, '' as target
from conversations t
join unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
  on t.agent_identity = k.agent_identity and t.id = k.id
