-- The first writer names the model of the vectors; everybody learns what it is, also who came second by a moment.
insert into hermes_pgvector_settings (name, value) values ('embedding_model', %(model)s)
on conflict (name) do update set value = hermes_pgvector_settings.value
returning value
