select move_memory_history(%(source)s, %(destination)s, %(account)s, %(mark)s::jsonb, %(limit)s) as id
