-- The distributed tables of which a shard has more dead rows than live ones, and those of which a shard has rows and no
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
), counted as (
  select name, (told ->> 0)::bigint as dead, (told ->> 1)::bigint as live, (told ->> 2)::bigint as bytes,
         (told ->> 3)::boolean as has_statistics
  from shards
)
select array(select distinct name from counted where dead > %(dead_rows)s and dead > live) as bloated,
       array(select distinct name from counted where live > 0 and bytes > %(counted_bytes)s and not has_statistics)
         as uncounted
