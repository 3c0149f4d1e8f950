-- The replay of a session, or what is taken back of it, counts what is stored: nobody of the home may store turns
-- meanwhile. The lock ends with the transaction.
select pg_advisory_xact_lock(hashtextextended('hermes-pgvector: sessions of ' || %(home)s, 0))
