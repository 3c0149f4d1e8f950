select rolcanlogin as may_log_in from pg_roles where rolname = %(login)s
