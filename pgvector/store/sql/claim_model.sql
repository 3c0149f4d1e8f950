-- The first writer names the model of the vectors; everybody learns what it is.
with claimed as (
  insert into hermes_pgvector_settings (name, value) values ('embedding_model', %(model)s)
  on conflict do nothing returning value
)
select value from claimed
union all
select value from hermes_pgvector_settings where name = 'embedding_model'
limit 1
