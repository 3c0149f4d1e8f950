-- Of each theme: the mean size of its newest rows, or some facts, in bytes without their indexes, and the homes of its newest
-- entries.
select t.theme, coalesce(e.bytes, 0)::float8 as entry_bytes, coalesce(e.homes, '{}') as homes,
       coalesce(c.bytes, 0)::float8 as turn_bytes, coalesce(f.bytes, 0)::float8 as fact_bytes
from unnest(%(themes)s::text[]) as t (theme)
cross join lateral (
  select avg(pg_column_size(r)) filter (where r.place <= %(sample)s) as bytes,
         array_agg(distinct r.home order by r.home) filter (where r.home <> '') as homes
  from (
    select *, row_number() over (order by created_at desc, id desc) as place from memory_entries
    where agent_identity = t.theme and (%(theme)s::text is null or agent_identity = %(theme)s)
    order by created_at desc, id desc limit %(homes_of)s) as r
) as e
cross join lateral (
  select avg(pg_column_size(r)) as bytes
  from (
    select * from conversations where agent_identity = t.theme and (%(theme)s::text is null or agent_identity = %(theme)s)
    order by ts desc, id desc limit %(sample)s) as r
) as c
cross join lateral (
  select avg(pg_column_size(r)) as bytes
  from (
    select * from facts where agent_identity = t.theme and status in ('active', 'cold')
      and (%(theme)s::text is null or agent_identity = %(theme)s)
    limit %(sample)s) as r
) as f
