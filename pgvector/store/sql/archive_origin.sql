-- What identifies a database: the time at which its schema was made.
select min(applied_at) as made_at from hermes_pgvector_migrations
