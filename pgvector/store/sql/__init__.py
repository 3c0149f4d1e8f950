"""SQL statements, one file a statement."""
