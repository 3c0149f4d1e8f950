"""The durable queue on local disk, between the hooks and the writer.

Every process owns one folder `<spool>/<random id>/` with a lock, an acknowledged position and numbered segments of
records. A record is written by one `write` call, so it survives the death of the process as soon as `append` returns.
The owner holds a flock on the lock. A folder whose lock is free is an orphan, which any process of the home takes over.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Collection
from itertools import islice
from pathlib import Path

from ..files import make_private, reason, sync_file
from ..model import Event
from .codec import frame
from .kept_segments import KeptSegments, Stored, drop
from .segments import (
    Position,
    Record,
    append_record,
    blank_events,
    holds_records,
    new_folder,
    open_segment,
    read_records,
    remove_folder,
    save_acknowledged,
    segment_path,
    segments,
    sync_segments,
)

log = logging.getLogger("hermes.pgvector")

SEGMENT_BYTES_MAX = 1 << 20
WINDOW_RECORD_BYTES_MAX = 16 << 10
REFUSALS_LOGGED_EVERY_S = 60.0


class Spool:
    """The queue of one process. `append` and the counts are for any thread, the rest is for the writer's thread.

    `window_max` bounds the events held in memory, `bytes_max` the bytes on disk that are not acknowledged. `folder` is
    None before the first event. When somebody deletes it, the next call makes another one: events in memory are still
    given out, the others are lost, and their number is logged. `parent` is the folder of the spools of this home.

    Segments whose events are stored go to `kept`; without it they are deleted.

    Of the `appended` events, `pending` are not acknowledged, and `left_behind` are not for this process to store any
    more: they wait in a closed folder for the next process, or were lost with a deleted one.
    """

    def __init__(
        self, folder: Path, *, bytes_max: int, window_max: int, fsync: bool = False, kept: KeptSegments | None = None
    ) -> None:
        self.parent, self.kept = folder, kept
        self._bytes_max = bytes_max
        self._window_max = window_max
        self._fsync = fsync
        self._lock = threading.Lock()
        self.folder: Path | None = None
        self._lock_fd = self._fd = -1
        # The records in memory, of which the first `_taken` were given out; `_on_disk` follow that are only on disk.
        # `_read` is the last one that is in memory.
        self._held: deque[Record] = deque()
        self._taken = self._on_disk = 0
        self._first = self._acknowledged = self._read = self._end = Position(1, 0)
        self._closed_segments: dict[int, int] = {}
        self._stored, self._log_at = Stored(), 0.0
        self.appended = self.left_behind = 0

    @property
    def pending(self) -> int:
        """The events that are not acknowledged."""
        # In this order, because a record that is read from disk meanwhile must not be missed.
        return self._on_disk + len(self._held)

    def ensure_folder(self) -> Path | None:
        """The folder, made now if it does not exist, so that other processes see this one. Raises OSError."""
        with self._lock:
            return self._check_folder() or self._begin()

    def append(self, event: Event) -> bool:
        """Make the event durable. Returns False, and keeps nothing, when the disk or the bound does not allow it."""
        record = frame(event)
        with self._lock:
            try:
                self._store(record)
            except OSError as error:
                if time.monotonic() >= self._log_at:
                    self._log_at = time.monotonic() + REFUSALS_LOGGED_EVERY_S
                    log.warning("the spool refuses events: %s; run: hermes-pgvector doctor", reason(error))
                return False
            waiting = len(self._held) - self._taken
            if self._on_disk == 0 and waiting < self._window_max and len(record) <= WINDOW_RECORD_BYTES_MAX:
                self._held.append(Record(self._end, event))
                self._read = self._end
            else:
                self._on_disk += 1
            # Last, because what was appended and is not pending counts as settled.
            self.appended += 1
            return True

    def sync(self) -> None:
        """Have the events that were appended so far survive a power loss. Raises OSError when they may not."""
        with self._lock:
            folder = self._check_folder()
            if any(record.position <= self._first for record in self._held):
                raise OSError(errno.EIO, "events are in memory only, because the spool folder was deleted")
            numbers = (*self._closed_segments, self._end.segment)
        if folder is not None:
            # The events of a segment that is gone may have been stored meanwhile.
            if max(sync_segments(folder, numbers), default=0) >= self._acknowledged.segment:
                raise FileNotFoundError(errno.ENOENT, "a segment of the spool was deleted")
            sync_file(self.parent)
            sync_file(self.parent.parent)

    def counts(self) -> tuple[int, int]:
        """The events that were appended, without those left behind, and those of them that are pending."""
        with self._lock:
            return self.appended - self.left_behind, self.pending

    def take(self, limit: int) -> list[Record]:
        """The next records in order, at most `limit`; each is given out once and stays on disk until acknowledged."""
        with self._lock:
            batch = list(islice(self._held, self._taken, self._taken + limit))
            self._taken += len(batch)
            folder, start, end = self.folder, self._read, self._end
            if batch or not self._on_disk or folder is None or self._check_folder() is None:
                return batch
        # Hooks go on appending behind `end` while the disk is read.
        batch = read_records(folder, start, end, limit)
        with self._lock:
            if self.folder != folder or (not batch and self._check_folder() is None):
                return []  # closed or deleted meanwhile
            self._held.extend(batch)
            self._taken += len(batch)
            self._read = batch[-1].position if batch else end
            # Several damaged records can be read as one.
            self._on_disk = 0 if self._read == self._end else max(1, self._on_disk - len(batch))
        return batch

    def acknowledge(self, batch: list[Record], timeline: str = "", erased: Collection[str] = ()) -> None:
        """Forget these records, which must be the oldest that were taken. Records taken before `close` are ignored.

        They were stored on this timeline, or on a later one of which `note_timeline` tells. Those of the `erased`
        events are overwritten.
        """
        self.note_timeline(timeline)
        with self._lock:
            if not batch or not self._taken or self._held[0].position > batch[-1].position:
                return
            while self._taken and self._held[0].position <= batch[-1].position:
                self._acknowledged = max(self._acknowledged, self._held.popleft().position)
                self._taken -= 1
            first = self._acknowledged.segment
            self._closed_segments = {known: size for known, size in self._closed_segments.items() if known >= first}
            self._stored.at = time.time()
            # The spool may be closed before all is saved, and the rest of the folder is another process's then.
            folder, acknowledged, stored = self.folder, self._acknowledged, self._stored
        if folder is not None:
            # Deleting comes first: on a full disk it makes room for saving.
            with contextlib.suppress(OSError):
                if erased:
                    blank_events(folder, erased, acknowledged)
                drop(segments(folder, first), self.kept, stored)
                save_acknowledged(folder, acknowledged, stored.timelines)

    def note_timeline(self, timeline: str) -> None:
        """Note which timeline the server is on now; events that were stored on another one are kept apart."""
        if timeline in ("", self._stored.current):
            return
        with self._lock:
            folder, acknowledged, stored = self.folder, self._acknowledged, self._stored
        with contextlib.suppress(OSError):  # then it is tried again at the next call
            if stored.current and folder and self.kept:
                self.kept.add_beginning(segment_path(folder, acknowledged.segment), acknowledged.offset, stored)
                save_acknowledged(folder, acknowledged, [*stored.before, timeline])
            stored.current = timeline

    def delete_stored(self) -> None:
        """Delete the events that are kept long enough and still in the segment that is written to."""
        with self._lock, contextlib.suppress(OSError):
            idle = self.kept is not None and time.time() - self._stored.at > self.kept.keep_s
            if idle and (folder := self._check_folder()) and self._end.offset and self._acknowledged == self._end:
                self._begin_segment()
                save_acknowledged(folder, self._acknowledged, self._stored.timelines)

    def rewind(self, count: int = sys.maxsize) -> None:
        """Give out again the last `count` records that were taken and not acknowledged."""
        with self._lock:
            self._taken = max(0, self._taken - count)

    def hand_over(self) -> tuple[Path, int] | None:
        """The folder and another descriptor of its lock, which stays locked after `close`; None without a folder."""
        with self._lock:
            return (self.folder, os.dup(self._lock_fd)) if self.folder else None

    def close(self) -> None:
        """Release the files. An empty folder is removed; any other is left to the next process."""
        with self._lock:
            with contextlib.suppress(OSError):
                self._check_folder()
            # These are in memory only, because their folder was deleted.
            lost = sum(record.position <= self._first for record in self._held)
            if lost:
                log.error("%d events were not stored in time and are lost with the deleted spool folder", lost)
            with contextlib.suppress(OSError):
                if self.folder is not None and not holds_records(self.folder, self._acknowledged):
                    drop(segments(self.folder, self._acknowledged.segment + 1), self.kept, self._stored)
                    remove_folder(self.folder)
            self.left_behind += len(self._held)
            self._held.clear()
            self._taken = 0
            self._release()

    def abandon(self) -> None:
        """Release the inherited descriptors in a forked child: the parent holds the lock and stores the events."""
        self._lock = threading.Lock()
        self._held.clear()
        self._release()
        self._taken = self.appended = self.left_behind = 0

    def _check_folder(self) -> Path | None:
        """The folder; None when there is none. Lets go of one that was deleted, or is another one by now."""
        if self.folder is None:
            return None
        try:
            found = os.stat(segment_path(self.folder, self._end.segment))
            gone = not os.path.samestat(found, os.fstat(self._fd))
        except FileNotFoundError:
            gone = True
        if gone:
            deleted = self.folder
            lost = self._on_disk
            self._release()
            log.log(
                logging.ERROR if lost else logging.WARNING,
                "the spool folder %s was deleted or replaced while in use: "
                "%d events are lost, %d in memory are still to be stored",
                deleted, lost, self.pending,
            )  # fmt: skip
        return self.folder

    def _release(self) -> None:
        """Close the files and leave behind what only the disk holds."""
        for fd in (self._fd, self._lock_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._fd = self._lock_fd = -1
        self.folder = None
        self.left_behind += self._on_disk
        self._on_disk = 0
        self._closed_segments, self._stored = {}, Stored()
        # A position is never used twice, so that a late acknowledgement cannot count for another folder.
        self._first = self._acknowledged = self._read = self._end = Position(self._end.segment + 1, 0)

    def _store(self, record: bytes) -> None:
        if self._check_folder() is None:
            self._begin()
        waiting = sum(self._closed_segments.values()) + self._end.offset - self._acknowledged.offset
        room = self._bytes_max - waiting - len(record)
        if room < 0:
            raise OSError(errno.ENOBUFS, "spool_max_mb is reached, because Postgres does not take them")
        if self.kept and self.kept.bytes > room:
            self.kept.shrink(room)
        try:
            self._write(record)
        except OSError:
            # The disk may be full of what is stored.
            freed = self.kept.shrink(0) if self.kept else 0
            if not waiting and self._acknowledged.offset:
                self._begin_segment()
            elif not freed:
                raise
            self._write(record)

    def _begin_segment(self) -> None:
        """Delete all segments, whose records are stored, and begin another one."""
        # Its number is fresh: after a crash, an old acknowledged offset in a truncated segment could skip new records.
        folder = self._open_next_segment()
        self._closed_segments = {}
        self._acknowledged = self._read = self._end
        drop(segments(folder, self._end.segment), None, self._stored)

    def _begin(self) -> Path:
        make_private(self.parent)
        self.folder, self._lock_fd, self._fd = new_folder(self.parent, self._end.segment)
        return self.folder

    def _open_next_segment(self) -> Path:
        assert self.folder is not None
        number = self._end.segment + 1
        fd = open_segment(self.folder, number)
        end = Position(number, os.fstat(fd).st_size)
        # Ctrl-C may end this at any call.
        self._closed_segments[self._end.segment] = self._end.offset
        closed, self._fd, self._end = self._fd, fd, end
        os.close(closed)
        return self.folder

    def _write(self, record: bytes) -> None:
        if self._end.offset >= SEGMENT_BYTES_MAX:
            self._open_next_segment()
        try:
            append_record(self._fd, record, self._end.offset, fsync=self._fsync)
        finally:
            self._end = Position(self._end.segment, os.fstat(self._fd).st_size)
