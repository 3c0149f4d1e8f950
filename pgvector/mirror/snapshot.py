"""The snapshot of a home: the entries of its memory files as last reconciled, and the events of the last change.

The file has lines of JSON, of which the last complete one counts. A line is appended in microseconds; replacing a file
can flush the disk, and a hook must not wait for that. A line is written before its events go to the spool, and contains
them; an empty line after it says that they are in the spool. Without the empty line a process has died in between, and
the next one submits the events again, which is safe because events have ids.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from ..errors import BadEvent
from ..files import make_private
from ..model import TARGETS, Event, Target
from ..outbox.codec import decode, encode

Entries: TypeAlias = Mapping[Target, tuple[str, ...]]
_Saved: TypeAlias = tuple[Entries, tuple[Event, ...], datetime]
_State: TypeAlias = tuple[int, int, int]

NEVER = datetime.min.replace(tzinfo=UTC)
# A line with a later time is damaged.
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
FILE_BYTES_MAX = 8 << 20
COMPACT_BYTES = 1 << 20
TAIL_BYTES = 16 << 10
POLL_S = 0.001


class Known:
    """What a process knows of a snapshot: what it `holds` in its last known state, and which files of it are open."""

    def __init__(self) -> None:
        self.holds: dict[_State, _Saved] = {}
        self.files: set[int] = set()

    def abandon(self) -> None:
        """Close the files in a forked child: it would keep a lock that its parent cannot release any more."""
        while self.files:
            with contextlib.suppress(OSError):
                os.close(self.files.pop())


@contextlib.contextmanager
def locked(path: Path, wait_s: float, known: Known) -> Iterator[Snapshot]:
    """The snapshot in a file, locked against other threads and processes.

    A file that has not changed since this process left it is not read again. Raises OSError when the file cannot be
    written, or when the lock is not free within `wait_s` seconds.
    """
    deadline = time.monotonic() + wait_s
    while True:
        file = _open(path)
        known.files.add(file)
        try:
            if _lock(file, path):
                snapshot = Snapshot(path, file, known.holds)
                yield snapshot
                snapshot.remember(known.holds)
                return
        finally:
            # Closing is not enough: a child that was forked meanwhile has a copy of the descriptor.
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            known.files.discard(file)
            os.close(file)
        if time.monotonic() > deadline:
            raise BlockingIOError(errno.EAGAIN, "another thread or process holds the snapshot")
        time.sleep(POLL_S)


class Snapshot:
    """A locked snapshot, for one thread. Methods raise OSError.

    `entries` are those of the files as last reconciled, `pending` the events that the spool may lack, and `last` is the
    time of the newest event that was ever written.
    """

    def __init__(self, path: Path, file: int, known: Mapping[_State, _Saved]) -> None:
        self._path, self._file = path, file
        state = _state(file)
        self._size = state[1]
        self.entries, self.pending, self.last = known.get(state) or _saved(file, self._size)

    def remember(self, known: dict[_State, _Saved]) -> None:
        """Note what the file holds now as known."""
        known.clear()
        known[_state(self._file)] = self.entries, self.pending, self.last

    def write(self, entries: Entries, events: Sequence[Event] = ()) -> None:
        """Save the entries, and the events that are submitted next, until `clear_pending`."""
        last = max((self.last, *(event.at for event in events)))
        line = _line(entries, events, last)
        if self._size + len(line) > FILE_BYTES_MAX:
            self._replace(line)
        else:
            self._append(line)
        self.entries, self.pending, self.last = entries, tuple(events), last

    def clear_pending(self) -> None:
        """Save that the events are in the spool."""
        if self.pending:
            self._append(b"\n")
            self.pending = ()

    def compact(self) -> None:
        """Remove the lines that no longer count, when they are many; this may wait for a disk."""
        if self._size > COMPACT_BYTES:
            self._replace(_line(self.entries, self.pending, self.last))

    def rewrite(self, entries: Entries, events: Sequence[Event]) -> None:
        """Replace the file by one with these entries and pending events alone: earlier lines have older ones."""
        self._replace(_line(entries, events, self.last))
        self.entries, self.pending = entries, tuple(events)

    def _append(self, line: bytes) -> None:
        try:
            _write(self._file, line)
        except OSError:
            # A line that a full disk has cut off would be read as the end of the line before it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(line)

    def _replace(self, line: bytes) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{uuid4().hex}")
        file = _open(fresh)
        try:
            # It is locked before it gets its name, so that no other process gets inside meanwhile.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, line)
            fresh.replace(self._path)
            os.dup2(file, self._file, inheritable=False)
        except OSError:
            fresh.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        self._size = len(line)


def _state(file: int) -> _State:
    """The inode, size and time of a file, of which one differs after each write."""
    status = os.fstat(file)
    return status.st_ino, status.st_size, status.st_mtime_ns


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private(path.parent)
        return os.open(path, flags, 0o600)


def _lock(file: int, path: Path) -> bool:
    """Whether the file is locked now, and not deleted or replaced since it was opened."""
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.path.samestat(os.stat(path), os.fstat(file))
    return False


def _write(file: int, line: bytes) -> None:
    if os.write(file, line) != len(line):
        raise OSError(errno.ENOSPC, "short write, the disk is full")


def _line(entries: Entries, events: Sequence[Event], last: datetime) -> bytes:
    """A line of the file. Its first line feed ends a line that a crash has cut off."""
    begun = [encode(event).decode("ascii") for event in events]
    text = json.dumps({**entries, "last": last.isoformat(), **({"begun": begun} if begun else {})})
    return b"\n" + text.encode("ascii") + (b"\n" if begun else b"\n\n")


def _saved(file: int, size: int) -> _Saved:
    """What the last undamaged line of a file says; the end of the file is read first."""
    for start in (max(0, size - TAIL_BYTES), 0):
        *lines, torn = os.pread(file, size - start, start).split(b"\n")
        if torn:
            # A crash has cut it off. It began with a line feed, which goes too.
            del lines[-1:]
        whole = lines[1:] if start else lines
        for place, line in enumerate(reversed(whole)):
            if found := _parsed(line, is_last=place == 0):
                return found
    return dict.fromkeys(TARGETS, ()), (), NEVER


def _parsed(line: bytes, *, is_last: bool) -> _Saved | None:
    """What a line says; None for an empty or damaged one. Only the last line has events that may be in no spool."""
    try:
        values: Any = json.loads(line)
        entries = {target: tuple(str(entry) for entry in values.get(target, ())) for target in TARGETS}
        last = max(NEVER, datetime.fromisoformat(values.get("last", NEVER.isoformat())))
        if last > LATEST:
            raise ValueError
        return entries, tuple(_events(values)) if is_last else (), last
    except (ValueError, AttributeError, TypeError, RecursionError):
        return None


def _events(values: Any) -> Iterator[Event]:
    for payload in values.get("begun", ()):
        # An unreadable event is of another version of this package.
        with contextlib.suppress(BadEvent):
            yield decode(payload.encode("ascii"))
