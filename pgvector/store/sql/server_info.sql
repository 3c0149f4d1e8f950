-- Works without our schema, too.
select split_part(current_setting('server_version'), ' ', 1) as server_version,
       coalesce((select extversion from pg_extension where extname = 'vector'), '') as pgvector_version,
       coalesce((select default_version from pg_available_extensions where name = 'vector'), '') as pgvector_available,
       pg_database_size(current_database()) as database_bytes,
       current_database()::text as database,
       current_setting('server_encoding') as encoding,
       current_user::text as role,
       (select rolsuper from pg_roles where rolname = current_user) as superuser,
       exists (select 1 from pg_class where oid = to_regclass('conversations') and pg_has_role(relowner, 'usage')) as owner,
       current_setting('search_path') as search_path,
       (select source from pg_settings where name = 'search_path') as search_path_source,
       -- Schemas in which the memory or pgvector is, and that are not on the search path.
       array(
         select distinct quote_ident(nspname) from pg_namespace
         where oid in (
           select relnamespace from pg_class
           where relname = 'hermes_pgvector_migrations' and to_regclass('hermes_pgvector_migrations') is null
           union all
           select extnamespace from pg_extension where extname = 'vector' and to_regtype('halfvec') is null)
         order by 1) as hidden
