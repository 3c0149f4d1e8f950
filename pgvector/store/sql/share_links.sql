-- Many processes may store events at once, but not while an account is linked.
select pg_advisory_xact_lock_shared(hashtextextended('hermes-pgvector: person links', 0))
