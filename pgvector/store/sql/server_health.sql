-- What a server may do to the memory without refusing a connection. Others' details of pg_stat_replication are hidden
-- from most roles, but not that there is a standby.
with ours as (select to_regclass(name) as id from unnest(%(tables)s::text[]) as name)
select pg_is_in_recovery() as standby,
       case when current_setting('default_transaction_read_only') = 'on'
            then (select source from pg_settings where name = 'default_transaction_read_only') else '' end as read_only,
       coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false) as encrypted,
       coalesce(host(inet_client_addr()), '') as client,
       current_setting('synchronous_commit') as synchronous_commit,
       (select count(*) from pg_stat_replication) as standbys,
       current_setting('synchronous_standby_names') <> '' as synchronous_standbys,
       clock_timestamp() as clock,
       array(
         select indexrelid::regclass::text from pg_index
         where indrelid in (select id from ours) and not (indisvalid and indisready)
         order by 1) as broken_indexes,
       array(
         select relname::text from pg_stat_user_tables
         where relid in (select id from ours) and n_dead_tup > %(dead_rows)s and n_dead_tup > n_live_tup
         order by 1) as bloated,
       -- Whom row security applies to does not see the statistics of a table.
       array(
         select oid::regclass::text from pg_class
         where oid in (select id from ours) and pg_relation_size(oid) > %(counted_bytes)s and not row_security_active(oid)
           and not exists (select 1 from pg_stats where schemaname = relnamespace::regnamespace::text and tablename = relname)
         order by 1) as uncounted,
       array(
         select relname::text from pg_index join pg_class on pg_class.oid = indexrelid
         where indrelid in (select id from ours)) as indexes,
       array(
         select array[tgname::text, tgrelid::regclass::text, tgenabled::text] from pg_trigger
         where tgrelid in (select id from ours) and not tgisinternal
         order by 1) as triggers
