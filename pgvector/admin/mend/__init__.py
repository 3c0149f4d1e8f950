"""Mend a memory: delete what is old, rename themes, merge entries that say the same, complete words in a shell."""
