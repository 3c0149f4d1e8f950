-- About how many rows the table has, as the server has last counted them; none where it has not.
select greatest(reltuples, 0)::bigint as rows from pg_class where oid = to_regclass('$table')
