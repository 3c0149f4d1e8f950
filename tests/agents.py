"""Agent processes that accept turns on demand; tests stop, continue and kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psycopg

from hermes_memory_pgvector.model import TurnTaken

_AGENT = """
    import json, logging, sys
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level="WARNING")
    from hermes_memory_pgvector.model import TurnTaken
    from hermes_memory_pgvector.runtime import acquire
    from hermes_memory_pgvector.settings import Settings
    runtime = acquire(Settings(**json.loads(sys.argv[1])), sys.argv[2])
    runtime.writer.wake()
    taken = 0
    print("ready", flush=True)
    for line in sys.stdin:
        count, theme = line.split()
        for _ in range(int(count)):
            runtime.accept(TurnTaken(theme=theme, session_id="s", user=f"question {taken} of {sys.argv[3]}",
                                     assistant=f"answer {taken} of {sys.argv[3]}"))
            taken += 1
        print(taken, flush=True)
"""


class Agent:
    """One process with the memory of a home. It logs to a file."""

    def __init__(self, home: Path, name: str = "one", **settings: Any) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._log = home.with_name(f"{home.name}.{name}.log")
        arguments = [sys.executable, "-P", "-c", textwrap.dedent(_AGENT), json.dumps(settings), str(home), name]
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd="/"
            )
        assert self._answer() == "ready"

    @property
    def pid(self) -> int:
        return self.process.pid

    def take(self, count: int, theme: str = "ops") -> None:
        """Accept `count` turns; they are on disk when it returns."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count} {theme}\n")
        self.process.stdin.flush()
        assert self._answer()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def end(self) -> None:
        """End the process in the normal way, also when it is stopped."""
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
        try:
            self.process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def log(self) -> str:
        return self._log.read_text()

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def turn(text: str, theme: str = "ops") -> TurnTaken:
    return TurnTaken(theme=theme, session_id="s", user=f"{text}, asked", assistant=f"{text}, answered")


def stored(dsn: str) -> dict[str, int]:
    """The number of rows of each text in conversations."""
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute("select content, count(*) from conversations group by content").fetchall())
