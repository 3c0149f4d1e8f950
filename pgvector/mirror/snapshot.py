"""The snapshot of a home: the entries of its memory files as last reconciled, and the changes that made them so.

It is kept as lines of JSON of which the last whole one counts: a line is appended in microseconds, while replacing a
file makes some file systems flush it, and a hook must not wait for a disk. A line is written before its events are
handed over, and holds them; an empty line says that they are in a spool. Where that is missing a process has died in
between, and whoever comes next hands them over again: their ids make that harmless.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from ..errors import BadEvent
from ..files import make_private
from ..model import TARGETS, Event, Target
from ..outbox.codec import decode, encode

Entries: TypeAlias = Mapping[Target, tuple[str, ...]]

NOTHING: Entries = dict.fromkeys(TARGETS, ())
NEVER = datetime.min.replace(tzinfo=UTC)
# No clock is ahead so far: a line that says so is damaged.
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
FILE_BYTES_MAX = 8 << 20
SPENT_BYTES_MAX = 1 << 20
TAIL_BYTES = 16 << 10
POLL_S = 0.001


class Snapshot:
    """The snapshot in a folder. Safe for several processes and threads: one at a time is inside `held`.

    There `entries` are those of the files as last reconciled, `begun` the events of them that may be in no spool, and
    `last` the time of the newest event that was ever noted.
    With `kept_open` the file stays open until `close`: a hook has no time to open and read it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "snapshot.jsonl"
        self._lock = threading.Lock()
        self._file = self._size = -1
        self.kept_open = False
        self.entries = NOTHING
        self.begun: tuple[Event, ...] = ()
        self.last = NEVER

    @contextlib.contextmanager
    def held(self, wait_s: float) -> Iterator[None]:
        """Be the only one inside.

        Raises OSError when the folder cannot be written, or when somebody else is inside for longer than `wait_s`
        seconds.
        """
        deadline = time.monotonic() + wait_s
        if not self._lock.acquire(timeout=wait_s):
            raise BlockingIOError(errno.EAGAIN, "another thread holds the snapshot")
        try:
            self._enter(deadline)
            yield
        finally:
            if self._file >= 0:
                # Closing would leave the lock with a child that was forked meanwhile.
                fcntl.flock(self._file, fcntl.LOCK_UN)
            if not self.kept_open:
                self._let_go()
            self._lock.release()

    def note(self, entries: Entries, events: Sequence[Event] = ()) -> None:
        """Keep entries, and the events that are handed over next, until `finish`. Raises OSError."""
        last = max((self.last, *(event.at for event in events)))
        line = _line(entries, events, last)
        if self._size + len(line) > FILE_BYTES_MAX:
            self._replace(line)
        else:
            self._append(line)
        self.entries, self.begun, self.last = entries, tuple(events), last

    def finish(self) -> None:
        """The events are in a spool. Raises OSError."""
        if self.begun:
            self._append(b"\n")
            self.begun = ()

    def shorten(self) -> None:
        """Leave out the lines that do not count, when they are many; this may wait for a disk. Raises OSError."""
        if self._size > SPENT_BYTES_MAX:
            self._replace(_line(self.entries, self.begun, self.last))

    def close(self) -> None:
        """Keep the file open no longer than somebody is inside."""
        self.kept_open = False
        if self._lock.acquire(blocking=False):
            self._let_go()
            self._lock.release()

    def abandon(self) -> None:
        """Begin anew in a forked child, where whoever was inside does not exist."""
        with contextlib.suppress(OSError):
            self._let_go()
        self._lock = threading.Lock()

    def _let_go(self) -> None:
        file, self._file, self._size = self._file, -1, -1
        if file >= 0:
            os.close(file)

    def _enter(self, deadline: float) -> None:
        while True:
            if self._file < 0:
                self._use(_open(self._path))
            _lock(self._file, deadline)
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(self._path)
                if os.path.samestat(found, self._identity):
                    break
            # The file was deleted or replaced.
            self._let_go()
            if time.monotonic() > deadline:
                raise BlockingIOError(errno.EAGAIN, "the snapshot is replaced again and again")
        if found.st_size != self._size:
            self.entries, self.begun, last = _saved(self._file, found.st_size)
            # An older version of this package leaves the time out.
            self.last = max(self.last, last)
            self._size = found.st_size

    def _use(self, file: int) -> None:
        self._file, self._identity = file, os.fstat(file)

    def _append(self, line: bytes) -> None:
        size, self._size = self._size, -1
        try:
            _write(self._file, line)
        except OSError:
            # What a full disk has torn would be taken for the end of the line before it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, size)
            raise
        self._size = size + len(line)

    def _replace(self, line: bytes) -> None:
        fresh = self._path.with_name(f"{self._path.name}.{uuid4().hex}")
        file = _open(fresh)
        try:
            # It is locked before it has its name: nobody else may be inside meanwhile.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write(file, line)
            fresh.replace(self._path)
        except OSError:
            os.close(file)
            fresh.unlink(missing_ok=True)
            raise
        self._let_go()
        self._use(file)
        self._size = len(line)


def _open(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        make_private(path.parent)
        return os.open(path, flags, 0o600)


def _lock(file: int, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def _write(file: int, line: bytes) -> None:
    if os.write(file, line) != len(line):
        raise OSError(errno.ENOSPC, "short write, the disk is full")


class _Saved(NamedTuple):
    entries: Entries = NOTHING
    begun: tuple[Event, ...] = ()
    last: datetime = NEVER


def _line(entries: Entries, events: Sequence[Event], last: datetime) -> bytes:
    """A line feed first ends a line that a crash has torn, and stands for the empty line of one that was finished."""
    begun = [encode(event).decode("ascii") for event in events]
    text = json.dumps({**entries, "last": last.isoformat(), **({"begun": begun} if begun else {})})
    return b"\n" + text.encode("ascii") + (b"\n" if begun else b"\n\n")


def _saved(file: int, size: int) -> _Saved:
    tail = min(size, TAIL_BYTES)
    found = _last(os.pread(file, tail, size - tail), whole=tail == size)
    if found is None and tail < size:
        found = _last(os.pread(file, size, 0), whole=True)
    return found or _Saved()


def _last(lines: bytes, *, whole: bool) -> _Saved | None:
    # What follows the last line feed was torn by a crash; a line that is damaged leaves the one before it.
    end = last = lines.rfind(b"\n")
    if 0 < last < len(lines) - 1:
        # With it goes the line feed that it began with.
        end = last = lines.rfind(b"\n", 0, last)
    while end > 0:
        start = lines.rfind(b"\n", 0, end) + 1
        if start == 0 and not whole:
            return None
        try:
            values: Any = json.loads(lines[start:end])
            entries = {target: tuple(str(entry) for entry in values.get(target, ())) for target in TARGETS}
            at = max(NEVER, datetime.fromisoformat(values.get("last", NEVER.isoformat())))
            if at > LATEST:
                raise ValueError
            return _Saved(entries, tuple(_events(values)) if end == last else (), at)
        except (ValueError, AttributeError, TypeError, RecursionError):
            end = start - 1
    return None


def _events(values: Any) -> Iterator[Event]:
    for payload in values.get("begun", ()):
        # What cannot be read was made by another version of this package.
        with contextlib.suppress(BadEvent):
            yield decode(payload.encode("ascii"))
