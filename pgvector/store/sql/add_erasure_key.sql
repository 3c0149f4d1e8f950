-- The secret of another database beside the own one, which is the first; the first of all in a database without one.
insert into hermes_pgvector_settings as s (name, value) values (%(name)s, %(value)s)
on conflict (name) do update set value = s.value || ',' || excluded.value
where position(excluded.value in s.value) = 0
