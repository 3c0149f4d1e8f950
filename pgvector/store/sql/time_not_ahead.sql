select least(%(at)s::timestamptz, clock_timestamp()) as at
