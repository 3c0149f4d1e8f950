"""A hook of the host's gateway: it loads the plugin before the gateway takes messages.

Host A enters a plugin into `sys.modules` before it executes it, without a lock: an agent that begins meanwhile, on
another thread, finds no provider and has no memory. The host imports this file before it connects to anything.
"""

from __future__ import annotations

from typing import Any

from hermes_cli.config import load_config
from plugins import memory

# Hosts that look for entry points load plugins under a lock.
if not hasattr(memory, "ENTRY_POINTS_GROUP") and (load_config().get("memory") or {}).get("provider") == "pgvector":
    memory.load_memory_provider("pgvector")


def handle(event: str, context: dict[str, Any]) -> None:
    """Do nothing: the host wants a handler, and when it calls it, messages may already have come."""
