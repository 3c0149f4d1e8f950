-- Rows of one theme, or of all, in each of the spans of time that begin at `days`; the first one is number 1.
select day, sum(entries)::bigint as entries, sum(turns)::bigint as turns
from (
  select width_bucket(created_at, %(days)s::timestamptz[]) as day, count(*) as entries, 0 as turns from memory_entries
  where created_at >= (%(days)s::timestamptz[])[1] and (%(theme)s = '' or agent_identity = %(theme)s) group by 1
  union all
  select width_bucket(ts, %(days)s::timestamptz[]), 0, count(*) from conversations
  where ts >= (%(days)s::timestamptz[])[1] and (%(theme)s = '' or agent_identity = %(theme)s) group by 1
) as counted
group by day
order by day
