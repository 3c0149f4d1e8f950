-- A lease that nobody else takes: while it lasts, the process is there.
with gone as (
  delete from hermes_pgvector_leases where starts_with(name, 'client ') and expires_at < now() and name <> %(name)s
)
insert into hermes_pgvector_leases (name, holder, expires_at)
values (%(name)s, %(holder)s, now() + make_interval(secs => %(seconds)s))
on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
