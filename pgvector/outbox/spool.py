"""The durable queue on local disk, between the hooks and the writer.

Every process owns one folder `<spool>/<random id>/` with a lock, an acknowledged position and numbered segments of
records. A record is written by one `write` call, so it survives the death of the process as soon as `append` returns.
The owner holds a flock on the lock; a folder whose lock is free is an orphan, and any process of the home may adopt it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path

from ..files import make_private
from ..model import Event
from .codec import (
    Position,
    Record,
    frame,
    new_folder,
    open_segment,
    open_to_read,
    read_records,
    remove_if_empty,
    save_acknowledged,
    segments,
)

log = logging.getLogger("hermes.pgvector")

SEGMENT_BYTES_MAX = 8 << 20
CLOSED_HELD_MAX = 32
SPENT_SEGMENT_BYTES_MAX = 1 << 20
WINDOW_RECORD_BYTES_MAX = 16 << 10
REFUSALS_LOGGED_EVERY_S = 60.0


class Spool:
    """The queue of one process. `append` may be called from any thread; the other methods by the drain thread alone.

    `window_max` bounds the events held in memory, `bytes_max` what all segments may take on disk. `appended`
    and `pending` count events: all that were taken in, and those of them that are not acknowledged; `handed_over` those
    that were pending when an earlier folder was closed, and wait there for an adopter.
    """

    def __init__(self, folder: Path, *, bytes_max: int, window_max: int, fsync: bool = False) -> None:
        self._parent = folder
        self._bytes_max = bytes_max
        self._window_max = window_max
        self._fsync = fsync
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._lock_fd = self._fd = -1
        self._end = self._cursor = self._acked = Position(1, 0)
        self._window: deque[Record] = deque()
        self._on_disk = 0
        self._closed: dict[int, tuple[int, int]] = {}
        self._log_at = 0.0
        self.appended = self.pending = self.handed_over = 0

    @property
    def folder(self) -> Path | None:
        """The folder of this process; None until the first event."""
        return self._folder

    def appear(self) -> Path | None:
        """The folder, made now if it is not there: by it, who looks from outside finds this process. Raises OSError."""
        with self._lock:
            self._restore()
            return self._folder or self._begin()

    def append(self, event: Event) -> bool:
        """Make the event durable. Returns False, and keeps nothing, when the disk or the bound does not allow it."""
        record = frame(event)
        with self._lock:
            try:
                self._store(record)
            except OSError as error:
                if time.monotonic() >= self._log_at:
                    self._log_at = time.monotonic() + REFUSALS_LOGGED_EVERY_S
                    reason = error.strerror or type(error).__name__
                    log.warning("the spool refuses events: %s; run: hermes-pgvector doctor", reason)
                return False
            self.appended += 1
            self.pending += 1
            taken = Record(self._end, event)
            if self._on_disk == 0 and len(self._window) < self._window_max and len(record) <= WINDOW_RECORD_BYTES_MAX:
                self._window.append(taken)
            else:
                self._on_disk += 1
            return True

    def take(self, limit: int) -> list[Record]:
        """The next records in order, at most `limit`; each is given out once and stays on disk until acknowledged."""
        with self._lock:
            if self._window:
                batch = [self._window.popleft() for _ in range(min(limit, len(self._window)))]
                self._cursor = batch[-1].position
                return batch
            if not self._on_disk or self._folder is None:
                return []
            self._restore()
            folder, start, end = self._folder, self._cursor, self._end
        # Hooks go on appending behind `end` while the disk is read.
        batch = read_records(folder, start, end, limit)
        with self._lock:
            if self._folder != folder or (not batch and self._deleted):
                return []  # closed or deleted meanwhile; the next call begins or makes it anew
            self._cursor = batch[-1].position if batch else end
            self._on_disk = 0 if self._cursor == self._end else max(1, self._on_disk - len(batch))
        return batch

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these records, which must be the oldest that were taken."""
        if not batch:
            return
        with self._lock:
            if not self._acked < batch[-1].position <= self._cursor:
                return  # it was taken before `close`; the next event has begun another folder
            self._acked = batch[-1].position
            # Several damaged records can come out as one.
            self.pending = max(0, self.pending - len(batch)) if self._acked < self._end else 0
            self._let_go_of_closed(self._acked.segment)
            with contextlib.suppress(OSError):
                self._restore()
                if self._acked == self._end and self._end.offset >= SPENT_SEGMENT_BYTES_MAX:
                    self._begin_segment()
            folder = self._folder
        if folder is not None:
            # First the room is made, which the note needs on a full disk.
            with contextlib.suppress(OSError):
                self._drop_segments()
                save_acknowledged(folder, self._acked)

    def rewind(self) -> None:
        """Give out again, from the oldest on, what was taken and not acknowledged."""
        with self._lock:
            self._window.clear()
            self._cursor = self._acked
            self._on_disk = self.pending

    def close(self) -> None:
        """Release the files. A folder with nothing left in it is removed; any other waits for its adopter."""
        with self._lock:
            with contextlib.suppress(OSError):
                self._restore()
            if self._fd >= 0:
                os.close(self._fd)
            if self._folder is not None:
                remove_if_empty(self._folder, self._acked, self._end)
            if self._lock_fd >= 0:
                os.close(self._lock_fd)
            self._forget()

    def abandon(self) -> None:
        """Let go of the inherited descriptors in a forked child, so that the parent alone holds its lock."""
        for fd in (self._fd, self._lock_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        with contextlib.suppress(OSError):
            self._let_go_of_closed(self._end.segment)
        self._lock = threading.Lock()
        self._forget()
        self.pending = self.handed_over = 0

    def _forget(self) -> None:
        self._fd = self._lock_fd = -1
        self._folder = None
        self._window.clear()
        self._on_disk = 0
        self._let_go_of_closed(self._end.segment)
        # No position comes twice: what was taken before and is acknowledged later must not count for the next folder.
        self._end = self._cursor = self._acked = Position(self._end.segment + 1, 0)

    def _store(self, record: bytes) -> None:
        self._restore()
        if self._folder is None:
            self._begin()
        if self._unacknowledged_bytes() + len(record) > self._bytes_max:
            raise OSError(errno.ENOSPC, "spool_max_mb is reached, because Postgres does not take them")
        if self._end.offset >= SEGMENT_BYTES_MAX:
            self._open_segment(self._end.segment + 1)
        try:
            self._write(record)
        except OSError:
            if self._acked != self._end or self._end.offset == 0:
                raise
            # The disk is full, but all that this segment takes of it is stored.
            self._begin_segment()
            self._drop_segments()
            self._write(record)

    def _begin(self) -> Path:
        folder = self._create()
        # What was pending when an earlier folder was closed waits there for its adopter.
        self.handed_over += self.pending
        self.pending = 0
        return folder

    def _create(self, content: bytes = b"") -> Path:
        make_private(self._parent)
        before = self._lock_fd, self._fd
        older = {number: fd for number, (_, fd) in self._closed.items() if fd >= 0}
        self._folder, self._lock_fd, self._fd = new_folder(self._parent, self._end.segment, content, older)
        for fd in before:
            if fd >= 0:
                os.close(fd)
        return self._folder

    @property
    def _deleted(self) -> bool:
        return self._fd >= 0 and os.fstat(self._fd).st_nlink == 0

    def _restore(self) -> None:
        """When somebody deleted the folder, give what it held another one, at the same positions."""
        if not self._deleted:
            return
        folder = self._create(os.pread(self._fd, self._end.offset, 0))
        save_acknowledged(folder, self._acked)
        log.warning("the spool of this process was deleted and is made anew; leave it alone while hermes runs")
        for number, (size, fd) in list(self._closed.items()):
            if fd < 0:
                del self._closed[number]
                log.error("memories were lost with %d bytes of the spool", size)
            else:
                os.close(fd)
                self._closed[number] = size, open_to_read(folder, number)

    def _let_go_of_closed(self, segment: int) -> None:
        """Of what stands before this segment nothing is needed any more."""
        for number in [number for number in self._closed if number < segment]:
            _, fd = self._closed.pop(number)
            if fd >= 0:
                os.close(fd)

    def _begin_segment(self) -> None:
        """Leave a segment of which everything is acknowledged."""
        # A fresh number, not a truncation: after a crash an old acknowledged offset could skip new records.
        self._open_segment(self._end.segment + 1)
        self._let_go_of_closed(self._end.segment)
        self._cursor = self._acked = self._end

    def _open_segment(self, number: int) -> None:
        assert self._folder is not None
        fd = open_segment(self._folder, number)
        # It is kept open, so that it outlives its folder; but a large backlog must not take all descriptors.
        if len(self._closed) >= CLOSED_HELD_MAX:
            os.close(self._fd)
            self._fd = -1
        self._closed[self._end.segment] = self._end.offset, self._fd
        self._fd = fd
        self._end = Position(number, os.fstat(fd).st_size)

    def _write(self, record: bytes) -> None:
        start = self._end.offset
        try:
            if os.write(self._fd, record) != len(record):
                raise OSError(errno.ENOSPC, "short write, the disk is full")
            if self._fsync:
                os.fsync(self._fd)
        except OSError:
            try:
                os.ftruncate(self._fd, start)
            except OSError:
                # The torn bytes stay, as a damaged stretch that readers pass over.
                self._end = Position(self._end.segment, os.fstat(self._fd).st_size)
            raise
        self._end = Position(self._end.segment, start + len(record))

    def _unacknowledged_bytes(self) -> int:
        return sum(size for size, _ in self._closed.values()) + self._end.offset - self._acked.offset

    def _drop_segments(self) -> None:
        for number, path in segments(self._folder) if self._folder else ():
            if number < self._acked.segment:
                path.unlink(missing_ok=True)
