-- One holder at a time; a lease that ran out is free. With row security each login has leases of its own, because it works on
-- the rows that it may see.
insert into hermes_pgvector_leases (name, holder, expires_at)
values (%(name)s || case when row_security_active('conversations') then ' of ' || session_user else '' end,
        %(holder)s, now() + make_interval(secs => %(seconds)s))
on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
where hermes_pgvector_leases.holder = excluded.holder or hermes_pgvector_leases.expires_at < now()
returning name
