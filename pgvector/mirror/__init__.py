"""MEMORY.md and USER.md: their entries, the snapshot, and the comparison with the database."""
