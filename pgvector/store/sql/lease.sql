select holder, extract(epoch from expires_at - now())::float8 as seconds_left
from hermes_pgvector_leases
where name = %(name)s and expires_at > now()
