-- How far a standby is, and of which server. On a primary, only `standby` and `system` are meant.
--
-- The timeline follows a promotion of the primary at the next restart point, or when the next page is written. The lag
-- is 0 while all is replayed that a connected receiver has got, and else the age of what was replayed last; it is null
-- when nothing is known of it.
select pg_is_in_recovery() as standby,
       (select system_identifier::text from pg_control_system()) as system,
       (select lpad(upper(to_hex(greatest(timeline_id, min_recovery_end_timeline))), 8, '0')
        from pg_control_checkpoint(), pg_control_recovery()) as timeline,
       coalesce((pg_last_wal_replay_lsn() - '0/0')::bigint, 0) as position,
       case when pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn() and exists (select from pg_stat_wal_receiver) then 0
            else greatest(0, extract(epoch from clock_timestamp() - pg_last_xact_replay_timestamp()))
       end::float8 as lag_s
