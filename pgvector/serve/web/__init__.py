"""The page of a memory, which only reads it, and its metrics, over HTTP."""
