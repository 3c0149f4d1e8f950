-- Key by key, for which the bound stands: for two lists the planner may read a whole theme, and by a plan that was made
-- when there were few rows all of them. Times that Python does not have, which come by psql, are told as the nearest
-- that it has. Metadata are mostly empty, and twenty empty documents take as long to parse as to find the rows.
select t.*
from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
cross join lateral (
  select agent_identity, id, content, nullif(metadata, '{}') as metadata,
         greatest('0001-01-03', least('9999-12-29', updated_at)) as at, '' as role, '' as session_id, target
  from memory_entries
  where agent_identity = k.agent_identity and id = k.id
  limit 1
) as t
