"""Agents that store turns and entries until they are killed.

Run as a program it forks an agent for each line of JSON on stdin, `["start", plan]`, and answers its process id;
`["reap", pid]` answers how it ended. Forking saves each agent the second that imports take.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from faultrig import diary

from hermes_memory_pgvector.mirror.entries import DELIMITER, parse
from hermes_memory_pgvector.model import RecallRequest, Scope
from hermes_memory_pgvector.outbox import spool
from hermes_memory_pgvector.runtime import acquire
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.write import backfill

THEMES = ("ops", "ops", "dev")
ENTRIES_MAX = 30
RECALL_S_MAX = 5.0


class Agent:
    """One agent of a home. With `files` it keeps MEMORY.md as a host does; the memory must equal it. Its changes are of
    the first theme, or of `any_theme`.

    Without them, agents that run at the same time must have begun with an empty diary: two that know the same past
    entries add one of them to two themes, and rightly it is there twice.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._home = Path(plan["home"])
        self._files = bool(plan["files"])
        self._any_theme = not self._files or bool(plan.get("any_theme"))
        self._pause_s = float(plan["pause_s"])
        self._random = random.Random(plan["seed"])
        self._name = f"{plan['seed']}-{os.getpid()}"
        self._count = 0
        self._said: dict[str, list[dict[str, str]]] = {}
        self._past = diary.read(self._home / "diary")
        self._diary = diary.Diary(self._home / "diary")
        self._runtime = acquire(Settings(**plan["settings"]), self._home)
        self._runtime.writer.wake()
        self._themes = plan.get("themes", THEMES)
        self._talks = [self._talk(theme) for theme in self._themes]
        if self._files:
            self._runtime.reconcile(self._talks[0].session.identity, self._name)

    def _talk(self, theme: str) -> Conversation:
        return Conversation(self._runtime.context, Identity(agent_identity=theme), self._name, "primary")

    def live(self, acts: int) -> None:
        """Act this often, with pauses of a random length."""
        for _ in range(acts):
            self._count += 1
            if self._random.random() < 0.04:
                self._recall()
            elif self._random.random() < 0.02:
                self._replay()
            elif self._random.random() < 0.7:
                self._take_turn()
            elif self._files:
                self._change_file()
            else:
                self._change_entry()
            time.sleep(self._random.expovariate(1 / self._pause_s) if self._random.random() < 0.8 else 0)

    def _take_turn(self) -> None:
        key = f"{self._name}-{self._count}"
        long = "word " * (5000 if self._random.random() < 0.02 else 0)
        self._diary.meant(key, "turn", new=key)
        refused = self._runtime.writer.counters.refused
        talk = self._random.choice(self._talks)
        question = f"What is known about the machine {key}? {long}"
        answer = f"The machine {key} is in good health. {long}"
        talk.take_turn(question, answer)
        if self._runtime.writer.counters.refused == refused:
            self._diary.done(key)
        self._said.setdefault(talk.session.identity.agent_identity, []).extend(
            [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        )

    def _replay(self) -> None:
        """Hosts replay the whole session, more than once."""
        theme = self._random.choice(self._themes)
        talk = next(talk for talk in self._talks if talk.session.identity.agent_identity == theme)
        talk.replay.end(self._said.get(theme, []))

    def _recall(self) -> None:
        began = time.monotonic()
        kind = self._random.choice(("turns", "entries"))
        request = RecallRequest(query="the machine in good health", scope=Scope("ops", None), limit=5, budget_s=0.5)
        self._runtime.recall(kind, request)
        took_s = time.monotonic() - began
        assert took_s < RECALL_S_MAX, f"a recall with a budget of 0.5 s took {took_s:.1f} s"

    def _choose(self, present: set[str], gone: set[str]) -> tuple[str, str, str]:
        """An action, the old entry and the new one."""
        old = self._random.choice(sorted(present)) if present else ""
        fresh = f"entry {self._name}-{self._count} of the memory"
        new = self._random.choice(sorted(gone)) if gone and self._random.random() < 0.3 else fresh
        if not old or (len(present) < ENTRIES_MAX and self._random.random() < 0.5):
            return "add", "", new
        return ("replace", old, new) if self._random.random() < 0.5 else ("remove", old, "")

    def _change_entry(self) -> None:
        action, old, new = self._choose(self._past.entries, self._past.gone)
        key = f"{self._name}-{self._count}"
        self._diary.meant(key, action, old, new)
        self._tell(action, old, new)
        self._diary.done(key)
        self._past.entries = self._past.entries - {old} | ({new} - {""})
        self._past.gone = (self._past.gone | ({old} - {""})) - {new}

    def _change_file(self) -> None:
        with self._locked() as path:
            present = [entry for entry in parse(path.read_text() if path.exists() else "") if entry]
            action, old, new = self._choose(set(present), set(self._past.gone) - set(present))
            self._past.gone |= {old} - {""}
            after = [new if entry == old else entry for entry in present] if old else [*present, new]
            fresh = path.with_name(f".fresh-{os.getpid()}")
            fresh.write_text(DELIMITER.join(entry for entry in after if entry))
            fresh.replace(path)
        self._tell(action, old, new)

    def _tell(self, action: str, old: str, new: str) -> None:
        # One host names the whole old entry, the other a part of it that no other entry has. With that part alone the
        # entry cannot always be told while several agents change one file and are killed.
        named = {"previous_content": old} if self._files or self._random.random() < 0.5 else {}
        about = {"old_text": old.removeprefix("entry "), **named} if old else {}
        talk = self._random.choice(self._talks) if self._any_theme else self._talks[0]
        talk.change_entry(action, "memory", new, about)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Path]:
        folder = self._home / "memories"
        folder.mkdir(exist_ok=True)
        with (folder / "MEMORY.md.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder / "MEMORY.md"


class Agents:
    """Starts agents and returns their exit codes; `close` kills those that still run."""

    def __init__(self) -> None:
        self.running: list[int] = []
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        self._program = subprocess.Popen(
            [sys.executable, "-P", __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env=environment,
        )  # fmt: skip

    def start(self, **plan: Any) -> int:
        self.running.append(self._ask("start", plan))
        return self.running[-1]

    def end(self, pid: int, how: signal.Signals | None = signal.SIGKILL) -> int:
        """End an agent, or wait for its own end; returns its exit code, negative for a signal."""
        if how is not None:
            os.kill(pid, how)
        self.running.remove(pid)
        return self._ask("reap", pid)

    def ended(self, pid: int) -> bool:
        """Whether it has ended by itself; `end` tells how."""
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def close(self) -> None:
        for pid in list(self.running):
            self.end(pid)
        self._program.communicate(timeout=10)

    def _ask(self, what: str, about: Any) -> int:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(json.dumps([what, about]) + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())


def _run(plan: dict[str, Any]) -> None:
    # Small segments, so that they roll over in the few seconds that an agent lives.
    spool.SEGMENT_BYTES_MAX, spool.SPENT_SEGMENT_BYTES_MAX = 64 << 10, 8 << 10
    # The lease of a killed backfill must run out soon, since the others wait for it.
    backfill.LEASE_S = 3.0
    agent = Agent(plan)
    agent.live(plan["acts"])
    if plan.get("idle"):
        time.sleep(3600)
    if not plan["polite"]:
        os._exit(0)


def main() -> None:
    for line in sys.stdin:
        what, about = json.loads(line)
        if what == "reap":
            print(os.waitstatus_to_exitcode(os.waitpid(about, 0)[1]), flush=True)
        elif pid := os.fork():
            print(pid, flush=True)
        else:
            os.dup2(os.open(os.devnull, os.O_RDWR), 0)
            os.dup2(2, 1)
            _run(about)
            return


if __name__ == "__main__":
    main()
