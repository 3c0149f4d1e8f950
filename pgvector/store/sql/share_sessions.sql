-- Many processes of a home may store turns at once, but not while one counts them.
select pg_advisory_xact_lock_shared(hashtextextended('hermes-pgvector: sessions of ' || %(home)s, 0))
