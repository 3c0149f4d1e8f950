-- The homes and the sources of the newest rows since a time, at most `rows` of each kind. The database does not know the
-- home of a turn.
select home, source, sum(entries)::bigint as entries, sum(turns)::bigint as turns
from (
  select home,
         coalesce(nullif(metadata ->> 'client', ''), metadata ->> 'origin',
                  case metadata - 'released' when '{}' then 'database' else 'memory tool' end) as source,
         1 as entries, 0 as turns
  from (
    select home, metadata from memory_entries
    where created_at >= %(since)s and (%(theme)s = '' or agent_identity = %(theme)s)
    order by created_at desc limit %(rows)s) as e
  union all
  select '', coalesce(metadata ->> 'origin', case when metadata ? 'replayed' then 'transcript'
    when metadata ? 'delegated_to' then 'delegation' else 'conversation' end), 0, 1
  from (
    select metadata from conversations
    where ts >= %(since)s and (%(theme)s = '' or agent_identity = %(theme)s)
    order by ts desc limit %(rows)s) as c
) as counted
group by home, source
order by sum(entries) + sum(turns) desc, home, source
limit %(limit)s
