delete from hermes_pgvector_leases
where name = %(name)s || case when row_security_active('conversations') then ' of ' || session_user else '' end
  and holder = %(holder)s
