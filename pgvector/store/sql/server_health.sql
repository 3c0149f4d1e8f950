-- What a server may do to the memory without refusing a connection. Others' details of pg_stat_replication are hidden
-- from most roles, but not that there is a standby.
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
         where indrelid = any (select to_regclass(name) from unnest(%(tables)s::text[]) as name)
           and not (indisvalid and indisready)
         order by 1) as broken_indexes,
       array(
         select relname::text from pg_stat_user_tables
         where relid = any (select to_regclass(name) from unnest(%(tables)s::text[]) as name)
           and n_dead_tup > %(dead_rows)s and n_dead_tup > n_live_tup
         order by 1) as bloated
