-- The connections of agents, also of releases that take no lease.
select pid, application_name as name, usename as role, coalesce(host(client_addr), '') as host
from pg_stat_activity
where datname = current_database() and starts_with(application_name, 'hermes-pgvector') and pid <> pg_backend_pid()
order by pid
