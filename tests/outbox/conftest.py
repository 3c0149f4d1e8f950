"""A process with a spool of its own, for tests that kill it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PROLOGUE = """
import os, signal, sys, time
from pathlib import Path
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.spool import Spool
folder = Path(sys.argv[1])
spool = Spool(folder, bytes_max=1 << 30, window_max=5)
def turn(n, size=10):
    return TurnTaken(theme="ops", user=str(n), assistant="x" * size)
"""


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Run a script in a process of its own, with a spool at hand; it is killed when the test ends."""
    running: list[subprocess.Popen[str]] = []

    def run(folder: Path, script: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + textwrap.dedent(script), str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": import_path()},
        )  # fmt: skip
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def import_path() -> str:
    """A folder on which the package has its name, as in this process."""
    return os.pathsep.join(entry for entry in sys.path if entry)
