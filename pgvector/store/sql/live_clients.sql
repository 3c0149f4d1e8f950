-- The processes of this release by their leases.
select holder from hermes_pgvector_leases where starts_with(name, 'client ') and expires_at > now() order by name
