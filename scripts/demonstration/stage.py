"""What the story of the demo is told with: agents in processes of their own, a look into Postgres, and the screen."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

ANSWER_S_MAX = 30.0
SEEN_S_MAX = 20.0

console = Console(highlight=False, width=max(80, min(100, Console().width)))


class Broken(Exception):
    """Something is not as promised."""


class Agent:
    """An agent in a process of its own on one host; host_agent.py says what it can do."""

    def __init__(self, home: Path, theme: str, session: str) -> None:
        self._name = f"the {theme} agent on {home.name}"
        self._log = home / "agent.log"
        self._answers: queue.Queue[str] = queue.Queue()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("host_agent.py")), theme, session],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=home, text=True,
                env={**os.environ, "HERMES_HOME": str(home)},
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
        """Have it call a method; the value, and the milliseconds that the memory took for it."""
        self.start(method, *args, **named)
        return self.answer()

    def start(self, method: str, *args: Any, **named: Any) -> None:
        """Have it call a method, and do not wait."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": method, "args": args, "named": named}) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def answer(self) -> tuple[Any, float]:
        """Its next answer."""
        try:
            line = self._answers.get(timeout=ANSWER_S_MAX)
        except queue.Empty:
            raise Broken(f"{self._name} did not answer within {ANSWER_S_MAX:g} s") from None
        if not line:
            raise self._ended()
        answer = json.loads(line)
        return answer["value"], answer["ms"]

    def kill(self) -> list[Any]:
        """SIGKILL: no handler runs and no buffer is written. Returns the values it had still said."""
        self._process.kill()
        self._process.wait(10)
        lines = iter(lambda: self._answers.get(timeout=ANSWER_S_MAX), "")
        return [json.loads(line)["value"] for line in lines if line.endswith("\n")]

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _ended(self) -> Broken:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return Broken(f"{self._name} ended: {said[-1] if said else 'it left no word'}")


class Rows:
    """The tables, read past the plugin."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def __call__(self, statement: str, **values: str) -> list[tuple[Any, ...]]:
        try:
            with psycopg.connect(self._dsn, connect_timeout=5, autocommit=True) as connection:
                return connection.execute(statement, values).fetchall()  # type: ignore[arg-type]
        except psycopg.Error as error:
            raise Broken(f"Postgres does not answer: {str(error).splitlines()[0]}") from None

    def count(self, theme: str) -> tuple[int, int]:
        """How many entries and how many turn rows a theme has."""
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


def wait(seen: Callable[[], bool], otherwise: str) -> None:
    """Wait until something is so. Raises Broken when it is not in time."""
    deadline = time.monotonic() + SEEN_S_MAX
    while not seen():
        if time.monotonic() > deadline:
            raise Broken(f"{otherwise} within {SEEN_S_MAX:g} s")
        time.sleep(0.03)


def heading(text: str) -> None:
    console.print()
    console.rule(f"[b]{text}[/]", align="left")
    console.print()


def show(what: RenderableType, *, indent: int = 2, after: int = 0) -> None:
    console.print(Padding(what, (0, 0, after, indent)))


def note(text: str) -> None:
    show(f"[dim]{escape(text)}[/]", after=1)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, right_from: int = 99, indent: int = 2) -> None:
    """Rows without lines; the columns from number `right_from` on hold figures."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number >= right_from else "left", no_wrap=number >= right_from)
    for row in rows:
        table.add_row(*row)
    show(table, indent=indent, after=1)


def took(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 100 else f"{ms:.0f} ms"
