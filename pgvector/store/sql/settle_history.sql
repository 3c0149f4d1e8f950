-- The history of entries that this transaction has moved to another theme.
select settle_memory_history(%(source)s, %(destination)s, %(ids)s::bigint[])
