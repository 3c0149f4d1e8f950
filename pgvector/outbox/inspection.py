"""What waits in the spools of a home, and how the processes fare that own them; seen from outside."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ..model import Counters, now
from . import heartbeat
from .codec import HEADER, MAGIC
from .heartbeat import HEARTBEAT_S, Heartbeat
from .segments import Position, Record, read_acknowledged, read_records, segments

Condition: TypeAlias = Literal["well", "failing", "stuck", "dead"]


class Backlog(NamedTuple):
    """What waits in the spools of a home. `oldest` is the time of the event that waits longest."""

    processes: int = 0
    events: int = 0
    bytes: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """The folder of one process: whether a living one holds it, what waits in it, and what it last told of itself.

    A folder that was adopted is held by its `adopter` and tells nothing, nor does one of a process that just begins.
    `changed` is the time of the folder.
    """

    folder: Path
    alive: bool
    waiting: Backlog
    signs: Heartbeat | None
    changed: datetime
    adopter: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process that holds it, or held it last; None when that is not known."""
        return self.signs.pid if self.signs else self.adopter

    @property
    def pending(self) -> int:
        """Events not stored yet, in the folder or adopted from others."""
        told = self.signs.counters.pending if self.signs and self.alive else 0
        return max(self.waiting.events, told)

    @property
    def still_since(self) -> datetime | None:
        """Since when nothing was settled of what waits, as far as can be told; None when nothing waits."""
        if not self.pending:
            return None
        since = self.signs.progress if self.signs else self.changed
        if (self.signs is None or self.signs.counters.pending == 0) and self.waiting.oldest:
            return max(since, self.waiting.oldest)
        return since

    def condition(self, stuck_after_s: float) -> Condition:
        """`failing` knows what is wrong and goes on trying; `stuck` does neither, though events wait."""
        if not self.alive:
            return "dead"
        moment = now()
        failing = self.signs is not None and bool(self.signs.problem)
        if failing and self.signs and (moment - self.signs.at).total_seconds() < stuck_after_s + HEARTBEAT_S:
            return "failing"
        still = self.still_since
        if still is not None and (moment - still).total_seconds() > stuck_after_s:
            return "stuck"
        return "well"


def processes(folder: Path) -> list[Process]:
    """Every process that has a spool in the folder, those that died too, longest unchanged first.

    Keeps no lock, so what it says may be a moment old.
    """
    found = []
    for path in folder.glob("[!.]*/"):
        with contextlib.suppress(OSError):  # a living process removes what it has stored
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            signs, adopter = heartbeat.read(path), heartbeat.adopter(path)
            found.append(Process(path, _held(path), waiting(path), signs, changed, adopter))
    return sorted(found, key=lambda process: process.changed)


def backlog(folder: Path) -> Backlog:
    """Count what living and dead processes have not stored yet."""
    return total(waiting(path) for path in folder.glob("[!.]*/"))


def total(parts: Iterable[Backlog]) -> Backlog:
    """Several as one; those in which nothing waits count for nothing."""
    parts = [part for part in parts if part.events]
    oldest = min((part.oldest for part in parts if part.oldest), default=None)
    return Backlog(len(parts), sum(part.events for part in parts), sum(part.bytes for part in parts), oldest)


def summed(counters: Iterable[Counters]) -> Counters:
    """The counters of several processes as one."""
    counters = list(counters)
    return Counters(**{name: sum(getattr(one, name) for one in counters) for name in Counters.__slots__})


def waiting(path: Path) -> Backlog:
    """Count what one process has not stored yet. Locks nothing, so it may be a moment old."""
    start = read_acknowledged(path)
    first: list[Record] = []
    events = size = 0
    with contextlib.suppress(OSError):  # a living process removes what it has stored
        for number, segment in segments(path):
            if number >= start.segment:
                data = segment.read_bytes()[start.offset if number == start.segment else 0 :]
                events, size = events + _count_records(data), size + len(data)
                end = Position(number, segment.stat().st_size)
                first = first or read_records(path, start, end, 1)
    return Backlog(1, events, size, next(_times(first), None)) if events else Backlog()


def _times(taken: Iterable[Record]) -> Iterator[datetime]:
    return (item.event.at for item in taken if item.event)


def _count_records(data: bytes) -> int:
    count, offset = 0, data.find(MAGIC)
    while 0 <= offset <= len(data) - HEADER.size:
        count += 1
        end = offset + HEADER.size + HEADER.unpack_from(data, offset)[1]
        offset = end if data.startswith(MAGIC, end) else data.find(MAGIC, offset + HEADER.size)
    return count


def _held(path: Path) -> bool:
    """Whether a living process holds the folder. An adopter that looks at this very moment comes again later."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to look at: somebody else's, and theirs to store
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
