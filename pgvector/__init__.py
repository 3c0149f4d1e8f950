"""Durable, theme-scoped memory for Hermes agents, in Postgres with pgvector.

Hosts find this package by its folder or its entry point and call `register(ctx)`, which hands them the provider through
`ctx.register_memory_provider`.
"""

from __future__ import annotations

from typing import Any

if __name__ == "pgvector":
    raise ImportError(
        "this is the folder of hermes-memory-pgvector, not the pgvector library: its parent is on sys.path and hides "
        "the library; run from another folder, or import hermes_memory_pgvector"
    )

__all__ = ["register"]


def register(ctx: Any) -> None:
    """Give the host its memory provider."""
    from .provider import PgvectorMemoryProvider

    ctx.register_memory_provider(PgvectorMemoryProvider())
