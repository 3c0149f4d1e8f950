-- Each row is looked up by its key, which the limit of 1 ensures: for two lists of keys the planner may read a whole theme.
-- Times that Python does not have, which psql can store, become the nearest that it has. Most metadata are empty: null is
-- sent instead, because parsing twenty empty documents takes as long as finding the rows.
select t.*
from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
cross join lateral (
  select agent_identity, id, content, nullif(metadata, '{}') as metadata,
         greatest('0001-01-03', least('9999-12-29', ts)) as at, role, session_id, '' as target
  from conversations
  where agent_identity = k.agent_identity and id = k.id and (%(theme)s::text is null or agent_identity = %(theme)s)
  limit 1
) as t
