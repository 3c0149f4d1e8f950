"""import: archives, and memories of other packages, each read by a module of its own."""
