select coalesce((select value from hermes_pgvector_settings where name = 'embedding_model'), '') as model,
       (select atttypmod from pg_attribute
        where attrelid = 'conversations'::regclass and attname = 'embedding') as dimensions
