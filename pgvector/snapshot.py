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

FILE_BYTES_MAX = 1 << 20
TAIL_BYTES = 16 << 10
POLL_S = 0.001


@contextlib.contextmanager
def opened(folder: Path, wait_s: float) -> Iterator[Snapshot]:
    """The snapshot in a folder, to be read and changed in place; it is saved when the block ends without an error.

    Safe for several processes and threads: one at a time is inside. Raises OSError when the folder cannot be written,
    or when somebody else is inside for longer than `wait_s` seconds.
    """
    lock = _open(folder, "snapshot.lock")
    file = -1
    try:
        _lock(lock, wait_s)
        file = _open(folder, "snapshot.jsonl")
        before = _saved(file)
        values = dict(before)
        yield values
        if values != before:
            _append(file, folder / "snapshot.jsonl", values)
    finally:
        if file >= 0:
            os.close(file)
        # Closing alone would leave the lock with a child that was forked meanwhile.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _open(folder: Path, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(f"{folder}/{name}", flags, 0o600)
    except FileNotFoundError:
        make_private(folder)
        return os.open(f"{folder}/{name}", flags, 0o600)


def _lock(descriptor: int, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _saved(file: int) -> Snapshot:
    size = os.fstat(file).st_size
    tail = min(size, TAIL_BYTES)
    values = _last(os.pread(file, tail, size - tail), whole=tail == size)
    if values is None and tail < size:
        values = _last(os.pread(file, size, 0), whole=True)
    return dict.fromkeys(TARGETS, ()) if values is None else values


def _last(lines: bytes, *, whole: bool) -> Snapshot | None:
    # What follows the last line feed was torn by a crash; a line that is damaged leaves the one before it.
    end = lines.rfind(b"\n")
    while end > 0:
        start = lines.rfind(b"\n", 0, end) + 1
        if start == 0 and not whole:
            return None
        try:
            values = json.loads(lines[start:end])
            return {target: tuple(str(entry) for entry in values.get(target, ())) for target in TARGETS}
        except (ValueError, AttributeError, TypeError):
            end = start - 1
    return None


def _append(file: int, path: Path, values: Snapshot) -> None:
    line = json.dumps({target: list(entries) for target, entries in values.items()}).encode("ascii") + b"\n"
    size = os.fstat(file).st_size
    if size + len(line) <= FILE_BYTES_MAX:
        # A line feed first ends a line that a crash has torn.
        os.write(file, b"\n" + line if size else line)
        return
    fresh = f"{path.name}.{uuid4().hex}"
    whole = _open(path.parent, fresh)
    try:
        os.write(whole, line)
    finally:
        os.close(whole)
    path.with_name(fresh).replace(path)
