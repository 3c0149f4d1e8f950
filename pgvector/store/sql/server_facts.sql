-- Works without our schema, too: a missing table has no missing privileges.
select split_part(current_setting('server_version'), ' ', 1) as server_version,
       coalesce((select extversion from pg_extension where extname = 'vector'), '') as pgvector_version,
       coalesce((select default_version from pg_available_extensions where name = 'vector'), '') as pgvector_available,
       pg_database_size(current_database()) as database_bytes,
       current_user::text as role,
       (select rolsuper from pg_roles where rolname = current_user) as superuser,
       exists (select from pg_class where oid = to_regclass('conversations') and pg_has_role(relowner, 'usage')) as owner,
       array(
         select privilege || ' on ' || name
         from unnest(%(tables)s::text[]) as name,
              unnest(array['select', 'insert', 'update', 'delete']) as privilege
         where to_regclass(name) is not null and not has_table_privilege(to_regclass(name), privilege)
         order by 1) as missing
