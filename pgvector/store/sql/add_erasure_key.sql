-- The secret of another database beside the own one, which is the first; the first of all in a database without one.
select add_memory_erasure_key(%(value)s)
