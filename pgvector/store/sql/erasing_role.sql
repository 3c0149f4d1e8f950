select current_database() || ' at ' || pg_postmaster_start_time()::text as place, current_user::text as role,
       has_table_privilege('memory_history', 'delete') as may_erase
