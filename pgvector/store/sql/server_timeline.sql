-- The identity of the data that the server holds: it is another one after a promotion, a restore or on another server.
-- Empty on a standby, where the function that names the timeline is refused.
select case when pg_is_in_recovery() then '' else
  (select system_identifier from pg_control_system()) || '-' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8)
end as timeline
