-- A link and its undoing wait for the transactions that store events, and later ones see it. The lock ends with the
-- transaction.
select pg_advisory_xact_lock(hashtextextended('hermes-pgvector: person links', 0))
