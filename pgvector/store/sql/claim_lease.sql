-- One holder at a time; a lease that ran out is free. With row security each login has leases of its own, because it works on
-- the rows that it may see. Nobody waits for a process whose transaction has just claimed it, and works on: over a network
-- that stalls, it would hold up the writers of all hosts. Who cannot have the lease locks nothing, so that its holder can
-- renew it.
insert into hermes_pgvector_leases (name, holder, expires_at)
select lease.name, %(holder)s, now() + make_interval(secs => %(seconds)s)
from (
  select %(name)s || case when row_security_active('conversations') then ' of ' || session_user else '' end as name
) as lease
where case when exists (
    select 1 from hermes_pgvector_leases l
    where l.name = lease.name and l.holder <> %(holder)s and l.expires_at >= now()
  ) then false
  else pg_try_advisory_xact_lock(hashtextextended('hermes-pgvector: lease ' || lease.name, 0)) end
on conflict (name) do update set holder = excluded.holder, expires_at = excluded.expires_at
where hermes_pgvector_leases.holder = excluded.holder or hermes_pgvector_leases.expires_at < now()
returning name
