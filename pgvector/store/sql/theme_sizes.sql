-- The rows with a vector of each large theme, and of all; counted by index alone.
select kind, theme, rows, sum(rows) over (partition by kind)::bigint as total
from (
  select 'turns' as kind, agent_identity as theme, count(*) as rows from conversations
  where embedding is not null group by agent_identity
  union all
  select 'entries', agent_identity, count(*) from memory_entries
  where embedding is not null group by agent_identity
  union all
  select 'facts', agent_identity, count(*) from facts
  where embedding is not null and status in ('active', 'cold') group by agent_identity
) as counted
order by rows desc, kind, theme
