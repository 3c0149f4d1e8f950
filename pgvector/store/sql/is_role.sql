select from pg_roles where rolname = %(login)s
