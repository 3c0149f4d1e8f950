-- Who keeps others from reading or writing our tables. The state of other roles' sessions is hidden from most roles.
select pid::text as pid, application_name as program, relation::regclass::text as "table"
from pg_locks join pg_stat_activity using (pid)
where relation = any (select to_regclass(name) from unnest(%(tables)s::text[]) as name) and granted and pid <> pg_backend_pid()
  and database = (select oid from pg_database where datname = current_database())
  and mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
order by 1, 3
