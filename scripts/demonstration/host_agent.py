"""One agent process of the demo: the parts of hermes-agent around memory, without a model.

The plugin loader, the memory manager and the memory tool are those of the host and are called as the host calls them.
Each line on stdin is JSON with a method of `Agent` and its arguments. Each answer is one line of JSON on stdout.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import gateway.session_context  # noqa: F401  (loaded in the host's API server, too)
from agent.memory_manager import MemoryManager
from plugins.memory import load_memory_provider
from tools.memory_tool import MEMORY_SCHEMA, load_on_disk_store, memory_tool

# One host calls the action `replace`, the other `patch`. Both do the same with a whole entry.
ACTIONS = MEMORY_SCHEMA["parameters"]["properties"]["action"]["enum"]


class Agent:
    """One session of one theme."""

    def __init__(self, theme: str, session: str) -> None:
        provider = load_memory_provider("pgvector")
        if provider is None or not provider.is_available():
            reason = provider.unavailable_reason() if provider else "hermes-agent did not find it"
            raise SystemExit(f"the provider cannot be used: {reason}")
        self.session = session
        self.took_ms = 0.0
        self.store = load_on_disk_store()
        self.memory = MemoryManager()
        self.memory.add_provider(provider)
        # As the host's API server does for a request with the header `X-Hermes-Session-Key: <theme>`.
        self.memory.initialize_all(
            session,
            platform="api_server",
            agent_context="primary",
            agent_identity="default",
            agent_workspace="hermes",
            gateway_session_key=theme,
        )

    def write(self, **arguments: str) -> str:
        """Change a memory file by the host's memory tool and notify the plugin. Returns the error, empty on success."""
        if arguments["action"] not in ACTIONS:
            arguments["action"] = "patch"
        result = memory_tool(**arguments, store=self.store)
        written = {"session_id": self.session, "write_origin": "assistant_tool"}
        self._timed(self.memory.notify_memory_tool_write, result, arguments, build_metadata=lambda: written)
        return "" if json.loads(result).get("success") else str(result)

    def turn(self, user: str, assistant: str) -> str:
        """End a turn and wait until the plugin's hook has returned. Returns the error, empty on success."""
        return "" if self._timed(self._end_turn, user, assistant) else "the hook did not return within 10 s"

    def _end_turn(self, user: str, assistant: str) -> bool:
        self.memory.sync_all(user, assistant, session_id=self.session)
        self.memory.queue_prefetch_all(user, session_id=self.session)
        return bool(self.memory.flush_pending(10))

    def ask(self, question: str) -> str:
        """The text that the host adds before a question of the user."""
        return str(self._timed(self.memory.prefetch_all, question))

    def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool of the plugin; returns its answer."""
        return json.loads(self._timed(self.memory.handle_tool_call, tool, arguments))

    def burst(self, turns: list[tuple[str, str]]) -> None:
        """End many turns in sequence. Prints the number of each turn when its hook has returned."""
        for number, (user, assistant) in enumerate(turns, 1):
            if not self.turn(user, assistant):
                self.answer(number)

    def answer(self, value: Any) -> None:
        """Print an answer: a value, and how many milliseconds the plugin took."""
        print(json.dumps({"value": value, "ms": self.took_ms}), flush=True)

    def _timed(self, act: Callable[..., Any], *args: Any, **named: Any) -> Any:
        started = time.perf_counter()
        try:
            return act(*args, **named)
        finally:
            self.took_ms = (time.perf_counter() - started) * 1000


def main() -> None:
    theme, session = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    agent = Agent(theme, session)
    agent.answer("ready")
    for line in sys.stdin:
        request = json.loads(line)
        agent.answer(getattr(agent, request["do"])(*request["args"], **request["named"]))
    agent.memory.shutdown_all()


if __name__ == "__main__":
    main()
