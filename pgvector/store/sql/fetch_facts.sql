-- As for entries. The text of a fact is what is searched: its target and its content. The rest of it is in its metadata.
select t.*
from unnest(%(themes)s::text[], %(ids)s::bigint[]) as k (agent_identity, id)
cross join lateral (
  select agent_identity, id, target || ': ' || content as content,
         metadata || jsonb_build_object('fact', jsonb_build_object(
           'kind', kind, 'scope', scope, 'content', content, 'status', status)) as metadata,
         greatest('0001-01-03', least('9999-12-29', written_at)) as at, '' as role, '' as session_id, target
  from facts
  where agent_identity = k.agent_identity and id = k.id and status in ('active', 'cold')
    and (%(theme)s::text is null or agent_identity = %(theme)s)
  limit 1
) as t
