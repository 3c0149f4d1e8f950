"""The queue in memory, for a home whose spool folder cannot be written, and the choice between the two."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

from ..files import make_private
from ..model import Event
from ..settings import Settings
from .kept_segments import KeptSegments
from .segments import Position, Record
from .spool import Spool

log = logging.getLogger("hermes.pgvector")


class MemoryQueue(Spool):
    """A spool without a folder: at most `window_max` events in memory, which are lost when the process ends."""

    def ensure_folder(self) -> None:
        """Do nothing: there is no folder."""

    def sync(self) -> None:
        """Raise OSError: nothing here survives the end of the process."""
        raise OSError(errno.EROFS, f"{self.parent} cannot be written and events are in memory only; set spool_dir")

    def append(self, event: Event) -> bool:
        """Keep the event in memory; False when the queue is full."""
        with self._lock:
            if self.pending >= self._window_max:
                return False
            self._end = Position(self._end.segment + 1, 0)
            self._held.append(Record(self._end, event))
            self.appended += 1
            return True

    def close(self) -> None:
        """Keep the events for the next use of this queue, because they are nowhere else."""
        self.rewind()


def open_outbox(folder: Path, settings: Settings) -> Spool:
    """A spool in the folder; a queue in memory, with a warning in the log, when the folder cannot be written."""
    try:
        make_private(folder)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        writable = False
    if not writable:
        log.warning("%s cannot be written: events are kept in memory until they are stored; set spool_dir", folder)
    kind = Spool if writable else MemoryQueue
    bytes_max, window_max = settings.spool_max_mb << 20, settings.write_queue_maxsize
    kept = KeptSegments(folder, keep_s=settings.outbox_keep_s, bytes_max=bytes_max)
    return kind(folder, bytes_max=bytes_max, window_max=window_max, fsync=settings.spool_fsync, kept=kept)
