select count(*) as others from pg_stat_activity
where datname = current_database() and starts_with(application_name, 'hermes-pgvector') and pid <> pg_backend_pid()
