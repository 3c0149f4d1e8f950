-- Facts of a theme are written by one transaction at a time: what a fact supersedes depends on all that is stored. The lock
-- ends with the transaction.
select pg_advisory_xact_lock(hashtextextended('hermes_pgvector facts ' || %(theme)s, 0))
