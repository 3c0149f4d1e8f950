"""Run in a host's Python: load the provider as the host does, keep a turn, and print what happened as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from agent.memory_provider import MemoryProvider
from plugins.memory import discover_memory_providers, load_memory_provider


class Complaints(logging.Handler):
    """What the loader says about modules that it could not execute; it swallows their errors."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or "ailed to" in record.getMessage():
            self.said.append(f"{record.name}: {record.getMessage()}")


complaints = Complaints()
logging.getLogger().addHandler(complaints)
for name in ("plugins", "hermes.pgvector"):
    logging.getLogger(name).setLevel(logging.DEBUG)

provider = load_memory_provider("pgvector")
answer: dict[str, object] = {"loaded": provider is not None, "complaints": complaints.said}
if provider is not None:
    answer |= {
        "class": type(provider).__name__,
        "is_a_provider": isinstance(provider, MemoryProvider),
        "available": provider.is_available(),
        "reason": provider.unavailable_reason(),
        "tools": [schema["name"] for schema in provider.get_tool_schemas()],
        "discovered": [available for found, _, available in discover_memory_providers() if found == "pgvector"],
    }
    provider.initialize("session-1", hermes_home=os.environ["HERMES_HOME"], platform="cli", agent_context="primary")
    user, assistant = sys.argv[1:]
    provider.sync_turn(user, assistant, session_id="session-1")
    provider.shutdown()
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    runtimes = [Path(file) for file in files if file and file.endswith("/runtime.py")]
    answer["copies"] = [str(file.parent.resolve()) for file in runtimes if (file.parent / "provider.py").exists()]
print(json.dumps(answer))
