-- Each count reads one index only, never the wide rows.
select agent_identity as theme, sum(entries)::bigint as entries, sum(turns)::bigint as turns, sum(facts)::bigint as facts,
       sum(without_vector)::bigint as without_vector,
       greatest('0001-01-03', least('9999-12-29', min(first))) as first,
       greatest('0001-01-03', least('9999-12-29', max(latest))) as latest
from (
  select agent_identity, count(*) as entries, 0 as turns, 0 as facts, 0 as without_vector, min(created_at) as first,
         max(created_at) as latest
  from memory_entries group by agent_identity
  union all
  select agent_identity, 0, count(*), 0, 0, min(ts), max(ts) from conversations group by agent_identity
  union all
  select agent_identity, 0, 0, count(*), 0, min(written_at), max(written_at) from facts
  where status in ('active', 'cold') group by agent_identity
  union all
  select agent_identity, 0, 0, 0, count(*), null, null from memory_entries where embedding is null group by agent_identity
  union all
  select agent_identity, 0, 0, 0, count(*), null, null from conversations where embedding is null group by agent_identity
  union all
  select agent_identity, 0, 0, 0, count(*), null, null from facts
  where embedding is null and status in ('active', 'cold') group by agent_identity
) as counted
group by agent_identity
order by sum(entries) + sum(turns) + sum(facts) desc, agent_identity
limit %(limit)s
