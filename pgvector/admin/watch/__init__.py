"""watch: for cron, whether the memory of a home is silent or degraded, and why."""
