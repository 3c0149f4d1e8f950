-- Two transactions that store an add and a remove of one entry would each miss the effect of the other. The lock ends
-- with the transaction.
select pg_advisory_xact_lock(hashtextextended('hermes-pgvector ' || %(home)s, 0))
