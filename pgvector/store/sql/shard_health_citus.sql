-- The distributed tables whose shards together have more dead rows than live ones, and those of which a shard has no
-- statistics. The workers know, not the coordinator.
with shards as (
  select name, result::json as told
  from unnest(%(tables)s::text[]) as name
    join pg_dist_partition on logicalrelid = to_regclass(name) and partmethod = 'h',
    lateral run_command_on_shards(logicalrelid, $command$
      select json_build_array(n_dead_tup, n_live_tup, pg_relation_size(relid), exists (
        select 1 from pg_stats where pg_stats.schemaname = shard.schemaname and tablename = relname))
      from pg_stat_user_tables shard where relid = '%%1$s'::regclass $command$)
  where success
), tables as (
  select name, sum((told ->> 0)::bigint) as dead, sum((told ->> 1)::bigint) as live,
         bool_or((told ->> 2)::bigint > %(counted_bytes)s and told ->> 3 = 'false') as uncounted
  from shards group by name
)
select array(select name from tables where dead > %(dead_rows)s and dead > live order by name) as bloated,
       array(select name from tables where uncounted order by name) as uncounted
