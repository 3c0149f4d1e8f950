"""Hosts of a simulated fleet, one process each: `fleet_host.py` reads lines of JSON on stdin and answers each by one.

`["start", plan]` forks a host and answers its process id; forking saves each host the second that imports take. The
fields of a plan are those of `Plan`. `["ended"]` answers the hosts that have ended since, as a list of [process id,
exit code, CPU seconds]. A host ends cleanly on SIGTERM. All hosts are killed when this process ends, which it does when
stdin closes.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import heapq
import importlib
import json
import os
import pkgutil
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, repeat
from pathlib import Path
from typing import Any

from agent_process import load_host
from texts import text

# The folders of the package that an agent uses.
USED = ("embedding", "facts", "hosts", "mirror", "outbox", "recall", "session", "store", "text", "tools", "write")
TEXTS, QUESTION_CHARS, ANSWER_CHARS = 200, 250, 900
SESSION_TURNS, ENTRIES_MAX = 12, 10
# Shares of the turns: with a call of a recall tool, with a change of an entry, that others follow without a pause.
TOOL_SHARE, ENTRY_SHARE, BURST_SHARE = 0.25, 0.1, 0.05
OWN_BURST_TURNS = 6
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Plan:
    """What one life of a host is. Times are of the clock `time.monotonic`; `until` ends the turns, not the host.

    All hosts take `burst_turns` turns at once every `burst_every_s` seconds after `began`.
    """

    name: str
    life: int
    home: str
    record: str
    theme: str
    settings: dict[str, str]
    turns_per_s: float
    began: float
    until: float
    burst_every_s: float
    burst_turns: int


class Host:
    """One life of a host: calls the hooks of a provider as a host does, and records what they accepted."""

    def __init__(self, plan: Plan) -> None:
        from hermes_memory_pgvector.provider import PgvectorMemoryProvider
        from hermes_memory_pgvector.runtime import acquire
        from hermes_memory_pgvector.settings import load

        os.environ.update({f"HERMES_PGVECTOR_{name.upper()}": value for name, value in plan.settings.items()})
        os.environ["HERMES_HOME"] = plan.home
        self._plan, self._chance = plan, random.Random(f"{plan.name} {plan.life}")
        self._record = os.open(plan.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._count, self._accepted = 0, ""
        self._said: list[dict[str, str]] = []
        self._provider = PgvectorMemoryProvider()
        self._session = f"{plan.name}-{plan.life}-0"
        self._provider.initialize(
            self._session, hermes_home=plan.home, platform="cli", agent_context="primary", agent_identity=plan.theme,
            agent_workspace="hermes",
        )  # fmt: skip
        self._runtime = acquire(load(plan.home), plan.home)
        self._watch_accepted()

    def _watch_accepted(self) -> None:
        """Have the id of each accepted event noted."""
        context, accept = self._runtime.context, self._runtime.context.accept

        def noting(event: Any) -> bool:
            accepted = accept(event)
            self._accepted = event.id if accepted else ""
            return accepted

        context.accept = noting

    def live(self) -> None:
        """Take turns until SIGTERM comes."""
        for at in self._moments():
            if _asked_to_end(at):
                return
            if time.monotonic() > self._plan.until:
                break
            self._take_turn()
        signal.sigwait({signal.SIGTERM})

    def end(self) -> None:
        from hermes_memory_pgvector.runtime import release

        self._provider.on_session_end(self._said)
        release(self._runtime)
        self._provider.shutdown()

    def _moments(self) -> Iterator[float]:
        plan = self._plan

        def own() -> Iterator[float]:
            at = time.monotonic()
            while True:
                at += self._chance.expovariate(plan.turns_per_s)
                yield from repeat(at, OWN_BURST_TURNS if self._chance.random() < BURST_SHARE else 1)

        def common() -> Iterator[float]:
            for number in count(1):
                if (at := plan.began + number * plan.burst_every_s) > time.monotonic():
                    yield from repeat(at, plan.burst_turns)

        return heapq.merge(own(), common())

    def _take_turn(self) -> None:
        self._count += 1
        if self._count % SESSION_TURNS == 0:
            self._begin_session()
        key, provider, chance = f"{self._plan.name}-{self._plan.life}-{self._count}", self._provider, self._chance
        question = f"{key} asks: {_text(chance, QUESTION_CHARS)}"
        answer = f"{key} says: {_text(chance, ANSWER_CHARS)}"
        self._write("meant", key)
        provider.on_turn_start(self._count, question)
        block, (recall_ms, _) = _timed(lambda: provider.prefetch(question, session_id=self._session))
        self._accepted = ""
        _, hook_ms = _timed(lambda: provider.sync_turn(question, answer, session_id=self._session))
        self._write("turn", key, self._accepted, time.time(), hook_ms, recall_ms, bool(block))
        self._said += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        if chance.random() < TOOL_SHARE:
            self._ask(question)
        if chance.random() < ENTRY_SHARE:
            self._change_entries(f"{key} keeps: {_text(chance, QUESTION_CHARS)}")

    def _begin_session(self) -> None:
        self._provider.on_session_end(self._said)
        self._said = []
        self._session = f"{self._plan.name}-{self._plan.life}-{self._count}"
        self._provider.on_session_switch(self._session, reset=True)

    def _ask(self, question: str) -> None:
        arguments = {"query": question[:100], "limit": 5}
        answer, (ms, _) = _timed(lambda: self._provider.handle_tool_call("recall_conversation", arguments))
        found = json.loads(answer)
        self._write("tool", ms, bool(found.get("degraded")), bool(found.get("error")))

    def _change_entries(self, entry: str) -> None:
        """Add an entry to MEMORY.md, in place of the oldest one when the file is full, as the host's tool does."""
        from hermes_memory_pgvector.mirror.entries import DELIMITER

        with _locked(Path(self._plan.home)) as path:
            before = read_entries(path)
            removed = before[:1] if len(before) >= ENTRIES_MAX else ()
            fresh = path.with_name(".fresh")
            fresh.write_text(DELIMITER.join((*before[len(removed) :], entry)))
            fresh.replace(path)
        for old in removed:
            self._provider.on_memory_write("remove", "memory", "", {"old_text": old[:60], "session_id": self._session})
        self._provider.on_memory_write("add", "memory", entry, {"session_id": self._session})

    def _write(self, *words: Any) -> None:
        line = json.dumps(words).encode() + b"\n"
        assert os.write(self._record, line) == len(line)


def read_entries(path: Path) -> tuple[str, ...]:
    """The entries of a memory file, the oldest first."""
    from hermes_memory_pgvector.mirror.entries import parse

    return parse(path.read_text()) if path.exists() else ()


@contextmanager
def _locked(home: Path) -> Iterator[Path]:
    folder = home / "memories"
    folder.mkdir(exist_ok=True)
    with (folder / "MEMORY.md.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder / "MEMORY.md"


def _timed(call: Callable[[], Any]) -> tuple[Any, tuple[float, float]]:
    """The result of a call, its milliseconds, and those of CPU time on this thread."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    result = call()
    return result, (1000 * (time.perf_counter() - began), 1000 * (time.thread_time() - cpu_began))


def _asked_to_end(at: float) -> bool:
    """Wait until `at`; returns whether SIGTERM has come."""
    return signal.sigtimedwait({signal.SIGTERM}, max(0.0, at - time.monotonic())) is not None


def _text(chance: random.Random, chars: int) -> str:
    return _texts[chance.randrange(TEXTS)][:chars]


_texts: Sequence[str] = ()


def _preload() -> None:
    """Import what an agent uses, and make the texts, once for all hosts."""
    global _texts
    load_host(())
    with suppress(ImportError):
        importlib.import_module("gateway.session_context")
    for name in ("numpy", "httpx", *(f"hermes_memory_pgvector.{each}" for each in (*USED, "runtime", "provider"))):
        module = importlib.import_module(name)
        if name.startswith("hermes_memory_pgvector.") and hasattr(module, "__path__"):
            for found in pkgutil.walk_packages(module.__path__, f"{name}."):
                importlib.import_module(found.name)
    # So that garbage collections of hosts do not copy the memory that they share.
    gc.freeze()
    _texts = [text(f"note {number}:") for number in range(TEXTS)]


def _ended() -> Iterator[tuple[int, int, float]]:
    with suppress(ChildProcessError):
        while True:
            pid, status, used = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # hosts and their threads inherit it, and wait for it
    _preload()
    print("ready", flush=True)
    for line in sys.stdin:
        what, *about = json.loads(line)
        if what == "ended":
            print(json.dumps(list(_ended())), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)
            host = Host(Plan(**about[0]))
            host.live()
            host.end()
            atexit._run_exitfuncs()
            os._exit(0)  # the rest of an exit would copy the memory that the hosts share


if __name__ == "__main__":
    main()
