select prune_memory_history(%(days)s) as id
