select value from hermes_pgvector_settings where name = %(name)s
