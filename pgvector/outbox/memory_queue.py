"""The queue of a home that cannot be written, and the choice between it and the spool on disk."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from pathlib import Path
from typing import TypeAlias

from ..files import make_private
from ..model import Event
from .segments import Position, Record
from .spool import Spool

log = logging.getLogger("hermes.pgvector")


class MemoryQueue:
    """A queue of at most `events_max` events in memory, used like a `Spool`. They are lost when the process ends."""

    folder = None
    left_behind = 0

    def __init__(self, *, events_max: int) -> None:
        self._events_max = events_max
        self._lock = threading.Lock()
        self._waiting: deque[Record] = deque()
        self._taken: deque[Record] = deque()
        self.appended = self.pending = 0

    def ensure_folder(self) -> None:
        """Do nothing: there is no folder."""

    def append(self, event: Event) -> bool:
        """Keep the event in memory; False when the queue is full."""
        with self._lock:
            if self.pending >= self._events_max:
                return False
            self.appended += 1
            self.pending += 1
            self._waiting.append(Record(Position(1, self.appended), event))
            return True

    def take(self, limit: int) -> list[Record]:
        """The next events in order, at most `limit`."""
        with self._lock:
            batch = [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]
            self._taken.extend(batch)
            return batch

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these events, which must be the oldest that were taken."""
        with self._lock:
            while batch and self._taken and self._taken[0].position <= batch[-1].position:
                self._taken.popleft()
                self.pending -= 1

    def rewind(self) -> None:
        """Give out again what was taken and not acknowledged."""
        with self._lock:
            self._waiting.extendleft(reversed(self._taken))
            self._taken.clear()

    def close(self) -> None:
        """Keep the events for the next use of this queue, because they are nowhere else."""
        self.rewind()

    def abandon(self) -> None:
        """Forget the events in a forked child: the parent stores them."""
        self._lock = threading.Lock()
        self._waiting.clear()
        self._taken.clear()
        self.pending = 0


Outbox: TypeAlias = Spool | MemoryQueue


def open_outbox(folder: Path, *, bytes_max: int, window_max: int, fsync: bool) -> Outbox:
    """A spool in the folder; a queue in memory, with a warning in the log, when the folder cannot be written."""
    try:
        make_private(folder)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if writable:
        return Spool(folder, bytes_max=bytes_max, window_max=window_max, fsync=fsync)
    log.warning(
        "the spool folder %s cannot be written: events are kept in memory until they are stored; set spool_dir", folder
    )
    return MemoryQueue(events_max=window_max)
