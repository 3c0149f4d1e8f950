"""The server of the package hermes-memory 0.3.0 in a process of its own, and what it leaves in its database."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DRIVER = Path(__file__).with_name("drive.py")
MADE_S_MAX, ENDED_S_MAX = 600, 30
FACTS = """
    select f.type, f.target, coalesce(s.label, ''), f.content, f.status, coalesce(s.status, 'active') = 'active'
    from facts f left join scopes s on s.id = f.scope_id"""


def python() -> str:
    """The Python of the environment with the package, which is made if need be."""
    made = subprocess.run(
        [ROOT / "scripts" / "environment", "peer"], capture_output=True, text=True, timeout=MADE_S_MAX, check=False
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


class Peer:
    """A server on a database in `folder`. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "memory.db"
        command = [python(), "-P", str(DRIVER), str(self.database)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(ENDED_S_MAX)
        self._process.stdout.close()

    def call(self, name: str, **arguments: Any) -> str:
        """The text that a tool answers."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer

    def facts(self) -> list[tuple[str, str, str, str, str, bool]]:
        """Kind, target, scope, content and status of all facts, and whether their scope is open."""
        with closing(sqlite3.connect(self.database)) as connection:
            return [(*row[:5], bool(row[5])) for row in connection.execute(FACTS)]
