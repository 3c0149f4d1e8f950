"""The pending events in the spools of a home, and the state of their processes, for `status` and `doctor`."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from ..model import SessionEnded, TurnTaken, now
from . import heartbeat
from .codec import MAGIC
from .heartbeat import HEARTBEAT_S, Counters, Heartbeat
from .segments import END, read_acknowledged, read_records, segments

# Of one process: a bound of what `watch` reads.
RECORDS_MAX = 50_000

Condition: TypeAlias = Literal["well", "failing", "stuck", "dead"]


class Backlog(NamedTuple):
    """The events that are not stored yet. `oldest` is the time of the oldest event."""

    processes: int = 0
    events: int = 0
    bytes: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True, slots=True)
class Process:
    """The spool folder of one process and its last heartbeat. `alive` is whether a living process holds the folder.

    There is no heartbeat just after the start of a process, and in a folder that was taken over: `new_owner` is the
    process that did so. `changed` is the time of the folder.
    """

    folder: Path
    alive: bool
    waiting: Backlog
    heartbeat: Heartbeat | None
    changed: datetime
    new_owner: int | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process that holds the folder, or held it last; None when that is not known."""
        return self.heartbeat.pid if self.heartbeat else self.new_owner

    @property
    def pending(self) -> int:
        """The number of events that are not stored yet, in the folder or taken from orphans."""
        reported = self.heartbeat.counters.pending if self.heartbeat and self.alive else 0
        return max(self.waiting.events, reported)

    @property
    def still_since(self) -> datetime | None:
        """The time since which no pending event was settled, as far as known; None when none is pending."""
        if not self.pending:
            return None
        since = self.heartbeat.progress if self.heartbeat else self.changed
        if (self.heartbeat is None or self.heartbeat.counters.pending == 0) and self.waiting.oldest:
            return max(since, self.waiting.oldest)
        return since

    def condition(self, stuck_after_s: float) -> Condition:
        """`failing` knows the problem and tries again; `stuck` settles no pending event and names no problem."""
        if not self.alive:
            return "dead"
        moment = now()
        if self.heartbeat and self.heartbeat.problem:
            heartbeat_age_s = (moment - self.heartbeat.at).total_seconds()
            if heartbeat_age_s < stuck_after_s + HEARTBEAT_S:
                return "failing"
        still = self.still_since
        if still is not None and (moment - still).total_seconds() > stuck_after_s:
            return "stuck"
        return "well"


def processes(folder: Path) -> list[Process]:
    """Every process, living or dead, that has a spool in the folder, the one that changed first first.

    Holds no lock, so the answer may be a moment old.
    """
    found = []
    for path in folder.glob("[!.]*/"):
        with contextlib.suppress(OSError):  # a living process may remove the folder meanwhile
            changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
            last, owner = heartbeat.read(path), heartbeat.new_owner(path)
            found.append(Process(path, _locked(path), _waiting(path), last, changed, owner))
    return sorted(found, key=lambda process: process.changed)


def waiting_sessions(folder: Path) -> dict[str, datetime]:
    """The sessions whose turns wait in the spools of the folder, each with the time of the newest."""
    newest: dict[str, datetime] = {}
    for path in folder.glob("[!.]*/"):
        with contextlib.suppress(OSError):  # a living process may remove the folder meanwhile
            for record in read_records(path, read_acknowledged(path), END, RECORDS_MAX):
                event = record.event
                if isinstance(event, TurnTaken | SessionEnded):
                    newest[event.session_id] = max(event.at, newest.get(event.session_id, event.at))
    return newest


def total(parts: Iterable[Backlog]) -> Backlog:
    """The sum of several; those without events are not counted as processes."""
    parts = [part for part in parts if part.events]
    oldest = min((part.oldest for part in parts if part.oldest), default=None)
    return Backlog(len(parts), sum(part.events for part in parts), sum(part.bytes for part in parts), oldest)


def summed(counters: Iterable[Counters]) -> Counters:
    """The sum of the counters of several processes."""
    counters = list(counters)
    return Counters(**{name: sum(getattr(one, name) for one in counters) for name in Counters.__slots__})


def _waiting(path: Path) -> Backlog:
    """The pending events in the folder of one process."""
    start = read_acknowledged(path)
    events = size = 0
    oldest = None
    with contextlib.suppress(OSError):  # a living process may remove segments meanwhile
        for number, segment in segments(path):
            if number >= start.segment:
                data = segment.read_bytes()[start.offset if number == start.segment else 0 :]
                # Payloads are ASCII, so this is where records begin.
                events, size = events + data.count(MAGIC), size + len(data)
        first = read_records(path, start, END, 1)
        oldest = first[0].event.at if first and first[0].event else None
    return Backlog(1, events, size, oldest) if events else Backlog()


def _locked(path: Path) -> bool:
    """Whether a living process holds the folder. A process that tries to take it over just now tries again later."""
    try:
        fd = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True  # it belongs to another user, who stores it
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
