select forget_memory_trial(%(theme)s, %(content)s) as id
