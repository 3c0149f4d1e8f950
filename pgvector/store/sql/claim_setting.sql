-- The first writer decides the value; every caller gets the stored value.
select claim_memory_setting(%(name)s, %(value)s) as value
