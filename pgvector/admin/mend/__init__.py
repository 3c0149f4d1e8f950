"""Mend a memory: delete what is old, rename themes, merge duplicates, hold attacks back, complete words in a shell."""
