"""A batch of events on its way into rows."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from ..model import Vector
from ..outbox.segments import Record
from ..outbox.spool import Spool
from ..store.passages import Passage, PreparedEvent


@dataclass(slots=True)
class Batch:
    """Records of one spool on their way into rows.

    A record goes from `unprepared` to `prepared` or `rejected`, and from there when it is settled, so a retry repeats
    nothing. `rejected` are dead letters as (name, reason, raw). `counts` are added to the status when all is settled.
    """

    source: Spool
    records: list[Record]
    unprepared: deque[Record]
    prepared: list[PreparedEvent] = field(default_factory=list)
    rejected: deque[tuple[str, str, str]] = field(default_factory=deque)
    # Passages with the vectors of their texts, which are on their way, and when these were requested.
    requested: list[tuple[Passage, Mapping[str, Future[Vector]]]] = field(default_factory=list)
    requested_at: float = 0.0
    # The model that makes them.
    model: str = ""
    # How many events one transaction may have.
    part_max: int = sys.maxsize
    unexpected: int = 0
    # The ids of events with something that was erased since they were accepted.
    erased: set[str] = field(default_factory=set)
    # The timeline of the server before the first attempt to write.
    timeline: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    # Whether rows were stored without a vector.
    unembedded: bool = False


def passages_of(events: list[PreparedEvent]) -> list[Passage]:
    """The passages of several events, in order."""
    return [passage for event in events for passage in event.passages]
