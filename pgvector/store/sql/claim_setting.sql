-- The first writer decides the value; everybody learns what it is, also who came second by a moment.
insert into hermes_pgvector_settings (name, value) values (%(name)s, %(value)s)
on conflict (name) do update set value = hermes_pgvector_settings.value
returning value
