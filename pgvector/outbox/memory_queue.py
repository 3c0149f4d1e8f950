"""The queue of a home that cannot be written, and the choice between it and the durable one."""

from __future__ import annotations

import logging
import os
from collections import deque
from pathlib import Path

from ..files import make_private
from ..model import Event
from .codec import Position, Record
from .spool import Spool

log = logging.getLogger("hermes.pgvector")


class MemoryQueue(Spool):
    """Stands in where the home cannot be written: events live in memory alone and die with the process."""

    def __init__(self, *, window_max: int) -> None:
        super().__init__(Path(os.devnull), bytes_max=0, window_max=window_max)
        self._given: deque[Record] = deque()

    def appear(self) -> Path | None:
        """Nobody finds a process that leaves nothing on disk."""
        return None

    def append(self, event: Event) -> bool:
        """Keep the event in memory; False when the window is full."""
        with self._lock:
            if self.pending >= self._window_max:
                return False
            self.appended += 1
            self.pending += 1
            self._end = Position(self._end.segment, self._end.offset + 1)
            self._window.append(Record(self._end, event))
            return True

    def take(self, limit: int) -> list[Record]:
        """The next events in order."""
        batch = super().take(limit)
        self._given.extend(batch)
        return batch

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these events."""
        super().acknowledge(batch)
        while self._given and self._given[0].position <= self._acked:
            self._given.popleft()

    def abandon(self) -> None:
        """Forget the events in a forked child: the parent stores them."""
        super().abandon()
        self._given.clear()

    def rewind(self) -> None:
        """Give out again what was taken and not acknowledged."""
        with self._lock:
            self._window.extendleft(reversed(self._given))
            self._given.clear()
            self._cursor = self._acked

    def close(self) -> None:
        """Keep the events, which are nowhere else, for whoever uses this spool again."""
        self.rewind()


def open_spool(folder: Path, *, bytes_max: int, window_max: int, fsync: bool) -> Spool:
    """The spool of this process: on disk where the folder can be written, else in memory, which is said in the log."""
    try:
        make_private(folder)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if writable:
        return Spool(folder, bytes_max=bytes_max, window_max=window_max, fsync=fsync)
    log.warning("the spool folder %s cannot be written: memories are volatile until stored; set spool_dir", folder)
    return MemoryQueue(window_max=window_max)
