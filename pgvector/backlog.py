"""What waits in the spools of a home, counted from outside."""

from __future__ import annotations

import contextlib
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from .records import HEADER, MAGIC, Position, Taken, read_acknowledged, read_records, segments


class Backlog(NamedTuple):
    """What waits in the spools of a home. `oldest` is the time of the event that waits longest."""

    processes: int = 0
    events: int = 0
    bytes: int = 0
    oldest: datetime | None = None


def backlog(folder: Path) -> Backlog:
    """Count what living and dead processes have not stored yet. Locks nothing, so it may be a moment old."""
    total = Backlog()
    for path in folder.glob("[!.]*/"):
        start = read_acknowledged(path)
        first: list[Taken] = []
        events = size = 0
        with contextlib.suppress(OSError):  # a living process removes what it has stored
            for number, segment in segments(path):
                if number >= start.segment:
                    data = segment.read_bytes()[start.offset if number == start.segment else 0 :]
                    events, size = events + _count_records(data), size + len(data)
                    end = Position(number, segment.stat().st_size)
                    first = first or read_records(path, start, end, 1)
        if events:
            times = [total.oldest, *(taken.event.at for taken in first if taken.event)]
            oldest = min((at for at in times if at is not None), default=None)
            total = Backlog(total.processes + 1, total.events + events, total.bytes + size, oldest)
    return total


def _count_records(data: bytes) -> int:
    count, offset = 0, data.find(MAGIC)
    while 0 <= offset <= len(data) - HEADER.size:
        count += 1
        end = offset + HEADER.size + HEADER.unpack_from(data, offset)[1]
        offset = end if data.startswith(MAGIC, end) else data.find(MAGIC, offset + HEADER.size)
    return count
