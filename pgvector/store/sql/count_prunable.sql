-- What `prune` would delete of each theme: rows, their bytes without indexes, and the times of the oldest and the newest.
-- `kept` are matching entries of files, which stay.
select agent_identity as theme, sum(turns)::bigint as turns, sum(entries)::bigint as entries, sum(kept)::bigint as kept,
       coalesce(sum(bytes), 0)::bigint as bytes,
       greatest('0001-01-03', least('9999-12-29', min(at))) as first,
       greatest('0001-01-03', least('9999-12-29', max(at))) as latest
from (
  select agent_identity, 1 as turns, 0 as entries, 0 as kept,
         pg_column_size(content) + coalesce(pg_column_size(embedding), 0) as bytes, ts as at
  from conversations
  where %(turns)s and agent_identity = any (%(themes)s::text[])
    and (%(before)s::timestamptz is null or ts < %(before)s)
    and (%(role)s = '' or role = %(role)s)
    and (%(chars)s::int = 0 or length(content) > %(chars)s)
  union all
  select agent_identity, 0, (home = '')::int, (home <> '')::int,
         case home when '' then pg_column_size(content) + coalesce(pg_column_size(embedding), 0) end,
         case home when '' then created_at end
  from memory_entries
  where %(entries)s and agent_identity = any (%(themes)s::text[])
    and (%(before)s::timestamptz is null or created_at < %(before)s)
    and (%(chars)s::int = 0 or length(content) > %(chars)s)
) as t
group by agent_identity
order by sum(turns) + sum(entries) desc, agent_identity
