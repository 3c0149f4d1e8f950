"""What a memory holds: themes, sessions, rows and growth; adding an entry, and what an agent gets before a turn."""
