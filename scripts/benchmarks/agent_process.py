"""Agent process of a benchmark: calls the providers of one package as a host does.

    agent_process.py ours|peer '{"dsn": …, "embed_url": …, "home": …, "settings": {…}}'

Each line on stdin is JSON with a method of `Agent` and its arguments, and each line on stdout is the answer. It runs in
the Python of the package under test and ends when stdin closes.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

WATCH_EVERY_S = 0.02
FILE_ENTRIES = 15
EMBED_S_MAX = 600.0
ANSWERS = 10


def ours(dsn: str, embed_url: str, home: str, settings: dict[str, Any]) -> Any:
    """A provider of this repository, with settings from environment variables."""
    every = {"dsn": dsn, "embed_url": embed_url and f"{embed_url}/v1", "cross_theme_recall": "all"}
    values = {**every, **settings}
    os.environ.update({f"HERMES_PGVECTOR_{name.upper()}": str(value) for name, value in values.items()})
    os.environ["HERMES_HOME"] = home
    # Hosts execute all modules of the plugin folder.
    from hermes_memory_pgvector import cli, runtime  # noqa: F401
    from hermes_memory_pgvector.provider import PgvectorMemoryProvider

    return PgvectorMemoryProvider()


def peer(dsn: str, embed_url: str, home: str, settings: dict[str, Any]) -> Any:
    """A provider of hermes-memory-pgvector 1.0, made as its register() makes it."""
    os.environ["HERMES_HOME"] = home
    from hermes_pgvector import PgvectorMemoryProvider

    return PgvectorMemoryProvider(config={"dsn": dsn, "embed_url": embed_url, **settings})


class Missing(MetaPathFinder):
    """Makes the import of some modules fail, as on a host that is installed without all its packages."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load_host(missing: Sequence[str]) -> None:
    """Import what a host has imported before it makes a provider, or a stub where hermes-agent is not installed.

    Its package `gateway` is imported by the first hook that needs it, as in a host without a gateway. The `missing`
    modules cannot be imported.
    """
    sys.meta_path.insert(0, Missing(missing))
    try:
        import agent.memory_provider  # noqa: F401
    except ImportError:
        provider: Any = ModuleType("agent.memory_provider")
        provider.MemoryProvider = type("MemoryProvider", (), {})
        sys.modules |= {"agent": ModuleType("agent"), "agent.memory_provider": provider}


class Agent:
    """The sessions of one process. With several sessions, each sends its turns in its own thread."""

    def __init__(self, make: Any, setup: dict[str, Any]) -> None:
        self._make, self._setup = make, setup
        self._sessions: list[Any] = []
        self._leaked: list[Any] = []
        self._askers: dict[tuple[str, int], Any] = {}
        self._turns: list[list[tuple[str, str, str]]] = []
        self._own_threads = threading.active_count()
        self._threads_max = 0

    def prepare(self, sessions: list[list[tuple[str, str, str]]]) -> None:
        """Take the turns of each session, as (session id, question, answer)."""
        self._turns = sessions

    def prepare_file(self, entries: list[str]) -> None:
        """Write MEMORY.md as it is after all changes of `change_entries`: the host's own writes are not measured."""
        file = Path(self._setup["home"], "memories", "MEMORY.md")
        file.parent.mkdir(exist_ok=True)
        file.write_text("\n§\n".join(entries[-FILE_ENTRIES:]), encoding="utf-8")

    def open(self, own_themes: bool = False) -> dict[str, float]:
        """Begin the sessions that were prepared, or one, on request each in a theme of its name; returns the usage."""
        names = [f"session-{number}" for number in range(len(self._turns) or 1)]
        self._sessions = [self._provider(name, *([name] if own_themes else [])) for name in names]
        return self.usage()

    def start(self, loaded: Sequence[str], question: str) -> dict[str, float]:
        """Begin a session as a host does and ask a first question; returns the milliseconds of each call, and of CPU.

        `loaded` names modules of the host that are imported before. As in a host, the question is asked on a thread of
        its own. Memories that it waits for are not there.
        """
        for name in loaded:
            importlib.import_module(name)
        took: dict[str, float] = {}

        def timed(name: str, call: Callable[[], Any]) -> Any:
            began, cpu_began = time.perf_counter(), time.thread_time()
            result = call()
            took[f"{name}_cpu_ms"] = 1000 * (time.thread_time() - cpu_began)
            took[f"{name}_ms"] = 1000 * (time.perf_counter() - began)
            return result

        provider = timed("load", lambda: self._make(**self._setup))
        for name in ("is_available", "get_tool_schemas"):
            timed(name, getattr(provider, name))
        timed("initialize", lambda: self._initialize(provider, "session-0"))
        timed("system_prompt_block", provider.system_prompt_block)
        timed("on_turn_start", lambda: provider.on_turn_start(1, question))
        asker = threading.Thread(target=provider.prefetch, args=[question], kwargs={"session_id": "session-0"})
        timed("prefetch", lambda: (asker.start(), asker.join()))
        return took

    def recall(self, question: str) -> None:
        """Ask before a turn, as a host does on a thread of its own, and wait for the answer."""
        asker = threading.Thread(target=self._sessions[0].prefetch, args=[question], kwargs={"session_id": "session-0"})
        asker.start()
        asker.join()

    def take_turn(self, question: str, answer: str) -> None:
        self._sessions[0].sync_turn(question, answer, session_id="session-0")

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

    def change_entries(self, entries: list[str]) -> dict[str, float]:
        """Call `on_memory_write` for changes of a full memory file; returns the times of the hook.

        Each added entry replaces an old one, because a host limits the size of the file. As in hermes-agent, a removal
        names only a part of the entry, so the provider has to look it up.
        """
        hook, session = self._sessions[0].on_memory_write, {"session_id": "session-0"}
        changes: list[tuple[Any, ...]] = [("add", "memory", entry, session) for entry in entries[:FILE_ENTRIES]]
        for old, new in zip(entries, entries[FILE_ENTRIES:]):  # noqa: B905 - the shorter one sets the count
            changes.append(("remove", "memory", "", {**session, "old_text": old[:60]}))
            changes.append(("add", "memory", new, session))
        took = []
        for change in changes:
            started = time.perf_counter_ns()
            hook(*change)
            took.append(time.perf_counter_ns() - started)
        return spread(took)

    def embed(self, texts: list[str], request_texts: int) -> dict[str, float]:
        """Embed texts with the bundled model and do nothing else; returns seconds and CPU seconds after its start."""
        from hermes_memory_pgvector.embedding import factory
        from hermes_memory_pgvector.settings import Settings

        embedder = factory.build(Settings())
        embedder.embed_passages(["The model is loaded by its first text."], EMBED_S_MAX)
        began, cpu_began = time.monotonic(), time.process_time()
        for start in range(0, len(texts), request_texts):
            embedder.embed_passages(texts[start : start + request_texts], EMBED_S_MAX)
        return {"seconds": time.monotonic() - began, "cpu_s": time.process_time() - cpu_began}

    def ask(
        self,
        theme: str,
        questions: list[str],
        callers: int,
        seconds: float,
        how: str = "tool",
        per_s: float = 0.0,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Ask the questions in turns from so many threads, each with a session of its own, for some seconds.

        `how` is "tool", "all" (the tool, over all themes) or "ambient" (before a turn). With `per_s` the questions
        arrive at this mean rate, at random times of this `seed`, and the time of an answer counts from the arrival.
        """
        for number in range(callers):
            if (theme, number) not in self._askers:
                self._askers[theme, number] = self._provider(f"asker-{number}", theme)
        providers = [self._askers[theme, number] for number in range(callers)]
        asked = Asked(how, questions, providers, per_s, random.Random(seed))
        asked.ask_first()
        return asked.run(seconds)

    def first_answer(self, theme: str, question: str) -> float | None:
        """Begin a session and ask before its first turn, as a host does; the milliseconds, None without memories."""
        began = time.monotonic()
        text = self._provider("first", theme).prefetch(question, session_id="first")
        return 1000 * (time.monotonic() - began) if text else None

    def leak(self, turns: list[tuple[str, str]]) -> None:
        """Make a provider for each turn and never shut it down, as a gateway may do for each request."""
        for number, turn in enumerate(turns):
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

    def _provider(self, session: str, theme: str = "bench") -> Any:
        provider = self._make(**self._setup)
        self._initialize(provider, session, theme)
        return provider

    def _initialize(self, provider: Any, session: str, theme: str = "bench") -> None:
        provider.initialize(
            session, hermes_home=self._setup["home"], platform="api_server", agent_context="primary",
            agent_identity="default", agent_workspace="hermes", gateway_session_key=theme,
        )  # fmt: skip

    def _send(self, number: int, took: list[int], per_s: float) -> None:
        hook = self._sessions[number].sync_turn
        began = time.monotonic()
        for place, (session, user, assistant) in enumerate(self._turns[number]):
            if per_s:
                time.sleep(max(0.0, began + place / per_s - time.monotonic()))
            started = time.perf_counter_ns()
            hook(user, assistant, session_id=session)
            took.append(time.perf_counter_ns() - started)

    def _watch(self) -> None:
        while True:
            self._threads_max = max(self._threads_max, threading.active_count() - self._own_threads)
            time.sleep(WATCH_EVERY_S)


class Asked:
    """Questions that threads of this process ask, each with a provider of its own."""

    def __init__(
        self, how: str, questions: list[str], providers: list[Any], per_s: float, chance: random.Random
    ) -> None:
        self._how, self._questions, self._providers = how, questions, providers
        self._chance, self._per_s = chance, per_s
        self._lock = threading.Lock()
        self._number, self._next_at = 0, 0.0
        self._took_ms: list[float] = []
        self._degraded = self._failed = self._empty = 0

    def ask_first(self) -> None:
        """Connect, and load what the first question needs."""
        for provider in self._providers:
            self._answer(provider, self._questions[-1])
        self._degraded = self._failed = self._empty = 0

    def run(self, seconds: float) -> dict[str, Any]:
        """Ask for so many seconds; returns the times and the CPU time of this process."""
        cpu_s, began = time.process_time(), time.monotonic()
        askers = [threading.Thread(target=self._ask, args=(each, began, seconds)) for each in self._providers]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join()
        took_s = time.monotonic() - began
        return {
            "ms": self._took_ms,
            "seconds": took_s,
            "cpu_ms": 1000 * (time.process_time() - cpu_s),
            "degraded": self._degraded,
            "failed": self._failed,
            "empty": self._empty,
        }

    def _ask(self, provider: Any, began: float, seconds: float) -> None:
        while True:
            with self._lock:
                number = self._number
                self._number += 1
                at = self._next_at
                self._next_at += self._chance.expovariate(self._per_s) if self._per_s else 0.0
            due = began + at if self._per_s else time.monotonic()
            if due >= began + seconds:
                return
            time.sleep(max(0.0, due - time.monotonic()))
            self._answer(provider, self._questions[number % len(self._questions)])
            self._took_ms.append(1000 * (time.monotonic() - due))

    def _answer(self, provider: Any, question: str) -> None:
        if self._how == "ambient":
            text = provider.prefetch(question, session_id="asker")
            self._degraded += "recall is degraded" in text
            self._empty += not text
            return
        scope = "all" if self._how == "all" else "current"
        arguments = {"query": question, "limit": ANSWERS, "scope": scope}
        answer = json.loads(provider.handle_tool_call("recall_conversation", arguments))
        self._degraded += bool(answer.get("degraded"))
        self._failed += bool(answer.get("error"))
        self._empty += not (answer.get("hits") or answer.get("results"))


def spread(took_ns: list[int]) -> dict[str, float]:
    """The first call in milliseconds; median, 99th percentile and maximum of all in microseconds."""
    ordered = sorted(took_ns)
    places = {"p50_us": len(ordered) // 2, "p99_us": int(len(ordered) * 0.99), "max_us": len(ordered) - 1}
    return {
        "first_ms": took_ns[0] / 1e6,
        **{name: ordered[min(place, len(ordered) - 1)] / 1000 for name, place in places.items()},
    }


def main(package: str, setup: str) -> None:
    values = json.loads(setup)
    missing = values.pop("missing_modules")
    if package == "ours":
        load_host(missing)
    under_test = Agent({"ours": ours, "peer": peer}[package], values)
    for line in sys.stdin:
        name, arguments = json.loads(line)
        print(json.dumps(getattr(under_test, name)(**arguments)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
