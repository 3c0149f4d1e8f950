"""An agent's process under test: providers of one package, driven by lines of JSON as a host drives them.

    agent.py ours|peer '{"dsn": …, "embed_url": …, "home": …, "settings": {…}}'

Each line on stdin is the name of a method of `Agent` with its arguments, each line on stdout its answer. It runs under
the Python of the package under test and needs nothing else.
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
    """A provider of this repository, set up by environment variables."""
    values = {"dsn": dsn, "embed_url": f"{embed_url}/v1", **settings}
    os.environ.update({f"HERMES_PGVECTOR_{name.upper()}": str(value) for name, value in values.items()})
    os.environ["HERMES_HOME"] = home
    from hermes_memory_pgvector.provider import PgvectorMemoryProvider

    return PgvectorMemoryProvider()


def peer(dsn: str, embed_url: str, home: str, settings: dict[str, Any]) -> Any:
    """A provider of hermes-memory-pgvector 1.0, set up as its register() does."""
    os.environ["HERMES_HOME"] = home
    from hermes_pgvector import PgvectorMemoryProvider

    return PgvectorMemoryProvider(config={"dsn": dsn, "embed_url": embed_url, **settings})


def host() -> None:
    """Load what the hooks need of hermes-agent, as a process of it has; where it is not installed, stand-ins for it."""
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
    """The sessions of one process; session n has a thread of its own when several speak at a time."""

    def __init__(self, make: Any, setup: dict[str, Any]) -> None:
        self._make, self._setup = make, setup
        self._sessions: list[Any] = []
        self._leaked: list[Any] = []
        self._told: list[list[tuple[str, str]]] = []
        self._own_threads = threading.active_count()
        self._threads_max = 0

    def open(self, sessions: int = 1) -> None:
        self._sessions = [self._provider(f"session-{number}") for number in range(sessions)]

    def learn(self, label: str, count: int) -> None:
        """Make up so many turns for each session to say."""
        self._told = [turns(f"{label} {number}", count) for number in range(len(self._sessions))]

    def say(self, per_s: float = 0.0) -> dict[str, float]:
        """Offer the turns that were learnt, at once or `per_s` a second; returns what the hook took."""
        told, took = self._told, [list[int]() for _ in self._sessions]
        if len(self._sessions) == 1:
            self._say(0, told[0], took[0], per_s)
        else:
            speakers = [
                threading.Thread(target=self._say, args=(number, told[number], took[number], per_s))
                for number in range(len(self._sessions))
            ]
            self._own_threads += len(speakers)
            for speaker in speakers:
                speaker.start()
            for speaker in speakers:
                speaker.join()
            self._own_threads -= len(speakers)
        return spread([ns for each in took for ns in each])

    def remember(self, count: int) -> dict[str, float]:
        """Tell so many changes of a memory file that is full; returns what the hook took.

        As in a host, whose files are small, an entry goes for each one that comes, and hermes-agent names only a part
        of it: which one it was must be looked up in the file. The last entries stand there from the beginning: a host
        that flushes the file to the disk for each of them makes no burst of it.
        """
        hook, session = self._sessions[0].on_memory_write, {"session_id": "session-0"}
        entries = [user[:150] for user, _ in turns("entry", FILE_ENTRIES + count // 2)]
        file = Path(self._setup["home"], "memories", "MEMORY.md")
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n§\n".join(entries[-FILE_ENTRIES:]), encoding="utf-8")
        for entry in entries[:FILE_ENTRIES]:
            hook("add", "memory", entry, session)
        changes: list[tuple[Any, ...]] = []
        for gone, new in zip(entries, entries[FILE_ENTRIES:]):  # noqa: B905 - as many as are new
            changes.append(("remove", "memory", "", {**session, "old_text": gone[:60]}))
            changes.append(("add", "memory", new, session))
        took = []
        for change in changes:
            started = time.perf_counter_ns()
            hook(*change)
            took.append(time.perf_counter_ns() - started)
        return spread(took)

    def leak(self, count: int) -> None:
        """Make providers as a gateway makes one a request, each with one turn, and never shut them down."""
        for number, turn in enumerate(turns("leaked", count)):
            provider = self._provider(f"request-{number}")
            provider.sync_turn(*turn, session_id=f"request-{number}")
            self._leaked.append(provider)

    def watch(self) -> None:
        """Begin to look for the most threads that the package under test has at a time."""
        self._own_threads += 1
        threading.Thread(target=self._watch, daemon=True).start()

    def vitals(self) -> dict[str, float]:
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

    def _say(self, number: int, told: list[tuple[str, str]], took: list[int], per_s: float) -> None:
        hook, session = self._sessions[number].sync_turn, f"session-{number}"
        began = time.monotonic()
        for place, (user, assistant) in enumerate(told):
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
        host()
    under_test = Agent({"ours": ours, "peer": peer}[package], json.loads(setup))
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(under_test, name)(**arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
