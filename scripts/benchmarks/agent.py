"""Agent process of a benchmark: calls the providers of one package as a host does.

    agent.py ours|peer '{"dsn": …, "embed_url": …, "home": …, "settings": {…}}'

Each line on stdin is JSON with a method of `Agent` and its arguments, and each line on stdout is the answer. It runs in
the Python of the package under test.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from texts import turns

WATCH_EVERY_S = 0.02
FILE_ENTRIES = 15


def ours(dsn: str, embed_url: str, home: str, settings: dict[str, Any]) -> Any:
    """A provider of this repository, with settings from environment variables."""
    values = {"dsn": dsn, "embed_url": f"{embed_url}/v1", **settings}
    os.environ.update({f"HERMES_PGVECTOR_{name.upper()}": str(value) for name, value in values.items()})
    os.environ["HERMES_HOME"] = home
    from hermes_memory_pgvector.provider import PgvectorMemoryProvider

    return PgvectorMemoryProvider()


def peer(dsn: str, embed_url: str, home: str, settings: dict[str, Any]) -> Any:
    """A provider of hermes-memory-pgvector 1.0, made as its register() makes it."""
    os.environ["HERMES_HOME"] = home
    from hermes_pgvector import PgvectorMemoryProvider

    return PgvectorMemoryProvider(config={"dsn": dsn, "embed_url": embed_url, **settings})


def load_host() -> None:
    """Import the modules of hermes-agent that the hooks use, or stubs where it is not installed."""
    try:
        import agent.memory_provider  # noqa: F401
        import gateway.session_context  # noqa: F401
    except ImportError:
        provider: Any = ModuleType("agent.memory_provider")
        provider.MemoryProvider = type("MemoryProvider", (), {})
        context: Any = ModuleType("gateway.session_context")
        context.get_session_env = lambda _name: ""
        sys.modules |= {"agent.memory_provider": provider, "gateway.session_context": context}
        sys.modules |= {name: ModuleType(name) for name in ("agent", "gateway")}


class Agent:
    """The sessions of one process. With several sessions, each sends its turns in its own thread."""

    def __init__(self, make: Any, setup: dict[str, Any]) -> None:
        self._make, self._setup = make, setup
        self._sessions: list[Any] = []
        self._leaked: list[Any] = []
        self._turns: list[list[tuple[str, str]]] = []
        self._own_threads = threading.active_count()
        self._threads_max = 0

    def open(self, sessions: int = 1) -> None:
        self._sessions = [self._provider(f"session-{number}") for number in range(sessions)]

    def prepare(self, label: str, count: int) -> None:
        """Generate `count` turns for each session."""
        self._turns = [turns(f"{label} {number}", count) for number in range(len(self._sessions))]

    def send(self, per_s: float = 0.0) -> dict[str, float]:
        """Call `sync_turn` with the prepared turns, all at once or `per_s` a second; returns the hook's times."""
        took = [list[int]() for _ in self._sessions]
        if len(self._sessions) == 1:
            self._send(0, took[0], per_s)
        else:
            senders = [
                threading.Thread(target=self._send, args=(number, took[number], per_s))
                for number in range(len(self._sessions))
            ]
            self._own_threads += len(senders)
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            self._own_threads -= len(senders)
        return spread([ns for each in took for ns in each])

    def change_entries(self, count: int) -> dict[str, float]:
        """Call `on_memory_write` for about `count` changes of a full memory file; returns the times of the hook.

        Each added entry replaces an old one, because a host limits the size of the file. As in hermes-agent, a removal
        names only a part of the entry, so the provider has to look it up. The file has its final content from the
        start, because a host's own write to disk is not measured.
        """
        hook, session = self._sessions[0].on_memory_write, {"session_id": "session-0"}
        entries = [user[:150] for user, _ in turns("entry", FILE_ENTRIES + count // 2)]
        file = Path(self._setup["home"], "memories", "MEMORY.md")
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n§\n".join(entries[-FILE_ENTRIES:]), encoding="utf-8")
        for entry in entries[:FILE_ENTRIES]:
            hook("add", "memory", entry, session)
        changes: list[tuple[Any, ...]] = []
        for old, new in zip(entries, entries[FILE_ENTRIES:]):  # noqa: B905 - the shorter one sets the count
            changes.append(("remove", "memory", "", {**session, "old_text": old[:60]}))
            changes.append(("add", "memory", new, session))
        took = []
        for change in changes:
            started = time.perf_counter_ns()
            hook(*change)
            took.append(time.perf_counter_ns() - started)
        return spread(took)

    def leak(self, count: int) -> None:
        """Make `count` providers with one turn each and never shut them down, as a gateway may do for each request."""
        for number, turn in enumerate(turns("leaked", count)):
            provider = self._provider(f"request-{number}")
            provider.sync_turn(*turn, session_id=f"request-{number}")
            self._leaked.append(provider)

    def watch_threads(self) -> None:
        """Start to record the maximum number of threads of the package under test."""
        self._own_threads += 1
        threading.Thread(target=self._watch, daemon=True).start()

    def usage(self) -> dict[str, float]:
        """Memory in MB, open files, threads of the package now and at most, CPU seconds so far."""
        status = Path("/proc/self/status").read_text()
        used = os.times()
        return {
            "rss_mb": int(status.partition("VmRSS:")[2].split()[0]) / 1024,
            "files": len(os.listdir("/proc/self/fd")) - 1,
            "threads": threading.active_count() - self._own_threads,
            "threads_max": self._threads_max,
            "cpu_s": used.user + used.system,
        }

    def close(self) -> None:
        for provider in self._sessions:
            provider.shutdown()

    def _provider(self, session: str) -> Any:
        provider = self._make(**self._setup)
        provider.initialize(
            session, hermes_home=self._setup["home"], platform="api_server", agent_context="primary",
            agent_identity="default", agent_workspace="hermes", gateway_session_key="bench",
        )  # fmt: skip
        return provider

    def _send(self, number: int, took: list[int], per_s: float) -> None:
        hook, session = self._sessions[number].sync_turn, f"session-{number}"
        began = time.monotonic()
        for place, (user, assistant) in enumerate(self._turns[number]):
            if per_s:
                time.sleep(max(0.0, began + place / per_s - time.monotonic()))
            started = time.perf_counter_ns()
            hook(user, assistant, session_id=session)
            took.append(time.perf_counter_ns() - started)

    def _watch(self) -> None:
        while True:
            self._threads_max = max(self._threads_max, threading.active_count() - self._own_threads)
            time.sleep(WATCH_EVERY_S)


def spread(took_ns: list[int]) -> dict[str, float]:
    """Median, 99th percentile and maximum in microseconds."""
    ordered = sorted(took_ns)
    places = {"p50_us": len(ordered) // 2, "p99_us": int(len(ordered) * 0.99), "max_us": len(ordered) - 1}
    return {name: ordered[min(place, len(ordered) - 1)] / 1000 for name, place in places.items()}


def main(package: str, setup: str) -> None:
    if package == "ours":
        load_host()
    under_test = Agent({"ours": ours, "peer": peer}[package], json.loads(setup))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(under_test, name)(**arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
