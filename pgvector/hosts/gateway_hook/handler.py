"""A hook of the host's gateway: it loads the plugin before the gateway takes messages.

Host A enters a plugin into `sys.modules` before it executes it, without a lock: an agent that begins meanwhile, on
another thread, finds no provider and has no memory. The host imports this file before it connects to anything.
"""

from __future__ import annotations

from typing import Any


def load() -> None:
    """Load the plugin, where the host uses it and its loader has no lock: hosts that look for entry points have one."""
    from hermes_cli.config import load_config
    from plugins import memory

    used = (load_config().get("memory") or {}).get("provider") == "pgvector"
    if used and not hasattr(memory, "ENTRY_POINTS_GROUP"):
        memory.load_memory_provider("pgvector")


def handle(event: str, context: dict[str, Any]) -> None:
    """Do nothing: the host wants a handler, and when it calls it, messages may already have come."""


if not __package__:  # The host imports this file by its path, as a module of its own.
    load()
