"""Spools for tests: made, emptied, and left behind as a killed process leaves them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.segments import Record
from hermes_memory_pgvector.outbox.spool import Spool


def turn(number: int, size: int = 10) -> TurnTaken:
    return TurnTaken(theme="ops", user=str(number), assistant="x" * size)


def numbers(batch: list[Record]) -> list[int]:
    return [int(taken.event.user) for taken in batch if isinstance(taken.event, TurnTaken)]


def make(folder: Path, bytes_max: int = 1 << 30, window_max: int = 5, **options: Any) -> Spool:
    return Spool(folder, bytes_max=bytes_max, window_max=window_max, **options)


def die(spool: Spool) -> None:
    """What a kill leaves behind: the files as they are, and a free lock."""
    os.close(spool._fd)
    os.close(spool._lock_fd)
    spool._fd = spool._lock_fd = -1


def drained(spool: Spool, limit: int = 7) -> list[int]:
    found = []
    while batch := spool.take(limit):
        found += numbers(batch)
        spool.acknowledge(batch)
    return found


def taken_over(folder: Path) -> list[int]:
    """What the next process finds, in order; it stores all of it."""
    found = []
    for orphan in orphans(folder):
        found += drained(orphan)
        orphan.close()
    return found


def folders(parent: Path) -> list[Path]:
    return [path for path in parent.iterdir() if path.is_dir()]


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()
