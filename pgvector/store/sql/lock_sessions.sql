-- A replay or a withdrawal counts stored turns, so nobody of the home may store turns meanwhile. The lock ends with the
-- transaction.
select pg_advisory_xact_lock(hashtextextended('hermes-pgvector: sessions of ' || %(home)s, 0))
