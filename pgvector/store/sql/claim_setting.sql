-- The first writer decides the value; every caller gets the stored value.
insert into hermes_pgvector_settings (name, value) values (%(name)s, %(value)s)
on conflict (name) do update set value = hermes_pgvector_settings.value
returning value
