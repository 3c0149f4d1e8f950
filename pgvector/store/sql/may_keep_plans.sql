-- Whether a connection may keep plans. A pooler, which may give each transaction another session of the server, tells
-- other process ids than the server's. Tables that are spread over nodes are planned for values.
select pg_backend_pid() as process,
       exists (select from pg_extension where extname = 'citus') as distributed
