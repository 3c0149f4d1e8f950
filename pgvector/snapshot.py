"""The snapshot of a home: the entries of its memory files as last reconciled.

It is kept as lines of JSON of which the last whole one counts: a line is appended in microseconds, while replacing a
file makes some file systems flush it, and a hook must not wait for a disk.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

from .model import TARGETS, Target
from .records import make_private

Snapshot: TypeAlias = dict[Target, tuple[str, ...]]

FILE_BYTES_MAX = 256 << 10
POLL_S = 0.001


@contextlib.contextmanager
def opened(folder: Path, wait_s: float) -> Iterator[Snapshot]:
    """The snapshot in a folder, to be read and changed in place; it is saved when the block ends without an error.

    Safe for several processes and threads: one at a time is inside. Raises OSError when the folder cannot be written,
    or when somebody else is inside for longer than `wait_s` seconds.
    """
    make_private(folder)
    lock = os.open(folder / "snapshot.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(lock, wait_s)
        path = folder / "snapshot.jsonl"
        before = _last(path)
        values = dict(before)
        yield values
        if values != before:
            _append(path, values)
    finally:
        # Closing alone would leave the lock with a child that was forked meanwhile.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _lock(descriptor: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _last(path: Path) -> Snapshot:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        lines = []
    # What follows the last line feed was torn by a crash; a line that is damaged leaves the one before it.
    for line in reversed(lines[:-1]):
        try:
            values = json.loads(line)
            return {target: tuple(str(entry) for entry in values.get(target, ())) for target in TARGETS}
        except (ValueError, AttributeError, TypeError):
            continue
    return dict.fromkeys(TARGETS, ())


def _append(path: Path, values: Snapshot) -> None:
    line = json.dumps({target: list(entries) for target, entries in values.items()}).encode("ascii") + b"\n"
    fresh = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
    whole = size + len(line) > FILE_BYTES_MAX
    fd = os.open(fresh if whole else path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        # A line feed first ends a line that a crash has torn.
        os.write(fd, line if whole or size == 0 else b"\n" + line)
    finally:
        os.close(fd)
    if whole:
        fresh.replace(path)
