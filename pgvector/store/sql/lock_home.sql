-- Two processes that store an add and a remove of one entry at once would each miss what the other does. The lock ends
-- with the transaction.
select pg_advisory_xact_lock(hashtextextended('hermes-pgvector ' || %(home)s, 0))
