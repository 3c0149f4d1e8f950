"""Agent processes and database queries of the demo."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

ANSWER_S_MAX = 30.0
WAIT_S_MAX = 20.0


class CheckFailed(Exception):
    """A check of the demo failed, or a part of it did not answer."""


class Agent:
    """A child process that runs host_agent.py with one HERMES_HOME. Its methods are those of `host_agent.Agent`."""

    def __init__(self, home: Path, theme: str, session: str) -> None:
        self._name = f"the {theme} agent on {home.name}"
        self._log = home / "agent.log"
        self._answers: queue.Queue[str] = queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("host_agent.py")), theme, session],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home, text=True,
                env={**os.environ, "HERMES_HOME": str(home), "HERMES_PGVECTOR_CROSS_THEME_RECALL": "all"},
            )  # fmt: skip
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Agent:
        self.answer()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.kill()

    def do(self, method: str, *args: Any, **named: Any) -> tuple[Any, float]:
        """Call a method; returns its value and how many milliseconds the plugin took."""
        self.start(method, *args, **named)
        return self.answer()

    def start(self, method: str, *args: Any, **named: Any) -> None:
        """Call a method without waiting for the answer."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": method, "args": args, "named": named}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def answer(self) -> tuple[Any, float]:
        """Wait for the next answer; returns the value and the milliseconds. Raises CheckFailed after ANSWER_S_MAX."""
        try:
            line = self._answers.get(timeout=ANSWER_S_MAX)
        except queue.Empty:
            raise CheckFailed(f"{self._name} did not answer within {ANSWER_S_MAX:g} s") from None
        if not line:
            raise self._ended()
        answer = json.loads(line)
        return answer["value"], answer["ms"]

    def kill(self) -> list[Any]:
        """Send SIGKILL; returns the values that the process printed before it ended."""
        self._process.kill()
        self._process.wait(10)
        lines = iter(lambda: self._answers.get(timeout=ANSWER_S_MAX), "")
        return [json.loads(line)["value"] for line in lines if line.endswith("\n")]

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _ended(self) -> CheckFailed:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return CheckFailed(f"{self._name} ended: {said[-1] if said else 'without a log line'}")


class Rows:
    """Queries that read the tables directly, without the plugin."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def __call__(self, statement: str, **values: str) -> list[tuple[Any, ...]]:
        try:
            with psycopg.connect(self._dsn, connect_timeout=5, autocommit=True) as connection:
                return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]
        except psycopg.Error as error:
            raise CheckFailed(f"Postgres does not answer: {str(error).splitlines()[0]}") from None

    def count(self, theme: str) -> tuple[int, int]:
        """The number of entries and of turn rows of a theme."""
        counted = self(
            "SELECT (SELECT count(*) FROM memory_entries WHERE agent_identity = %(theme)s),"
            " (SELECT count(*) FROM conversations WHERE agent_identity = %(theme)s)",
            theme=theme,
        )
        return counted[0][0], counted[0][1]

    def entries(self, theme: str) -> list[str]:
        """The contents of a theme's entries."""
        return [row[0] for row in self("SELECT content FROM memory_entries WHERE agent_identity = %(t)s", t=theme)]

    def turns(self, session: str) -> list[str]:
        """The contents of a session's turn rows."""
        return [row[0] for row in self("SELECT content FROM conversations WHERE session_id = %(s)s", s=session)]


def wait(condition: Callable[[], bool], failure: str) -> None:
    """Wait until `condition` is true. Raises CheckFailed with `failure` after WAIT_S_MAX."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise CheckFailed(f"{failure} within {WAIT_S_MAX:g} s")
        time.sleep(0.03)
