delete from hermes_pgvector_leases where name = %(name)s and holder = %(holder)s
