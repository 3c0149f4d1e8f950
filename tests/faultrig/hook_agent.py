"""An agent of any release. A line of JSON on stdin, `[session, hook, arguments, named]`, calls a hook of a session.

It prints what the hook returns, as JSON. It uses only what hosts use, so that it runs with the package of any release.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

agent, base = types.ModuleType("agent"), types.ModuleType("agent.memory_provider")
base.MemoryProvider = type("MemoryProvider", (), {})  # type: ignore[attr-defined]
sys.modules |= {"agent": agent, "agent.memory_provider": base}

from hermes_memory_pgvector.provider import PgvectorMemoryProvider  # noqa: E402


def main() -> None:
    sessions: dict[str, Any] = {}
    for line in sys.stdin:
        session, hook, arguments, named = json.loads(line)
        provider = sessions.setdefault(session, PgvectorMemoryProvider())
        print(json.dumps(getattr(provider, hook)(*arguments, **named)), flush=True)
    for provider in sessions.values():
        provider.shutdown()


if __name__ == "__main__":
    main()
