-- Rows of these themes since a time; a theme without new rows is left out.
select theme, sum(entries)::bigint as entries, sum(turns)::bigint as turns
from (
  select agent_identity as theme, count(*) as entries, 0 as turns from memory_entries
  where agent_identity = any (%(themes)s::text[]) and created_at >= %(since)s group by agent_identity
  union all
  select agent_identity, 0, count(*) from conversations
  where agent_identity = any (%(themes)s::text[]) and ts >= %(since)s group by agent_identity
) as counted
group by theme
