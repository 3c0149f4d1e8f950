select coalesce((select value from hermes_pgvector_settings where name = 'embedding_model'), '') as model,
       coalesce((select value::int from hermes_pgvector_settings where name = 'oldest_client'), 0) as oldest_client,
       (select atttypmod from pg_attribute
        where attrelid = 'conversations'::regclass and attname = 'embedding') as dimensions
