-- The identity of the data that the server holds: it is another one after a promotion, a restore or on another server.
-- Empty on a standby, where the functions that name the timeline and the end of the WAL are refused.
select case when pg_is_in_recovery() then '' else
  (select system_identifier from pg_control_system()) || '-' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
end as timeline,
case when pg_is_in_recovery() then 0 else (pg_current_wal_insert_lsn() - '0/0')::bigint end as position
