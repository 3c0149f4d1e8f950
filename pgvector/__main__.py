"""`python -m hermes_memory_pgvector`: the command line."""

from __future__ import annotations

if __name__ == "__main__":
    import sys

    from .cli import main

    sys.exit(main())
