"""Orphans, the spools of dead processes: found by their free lock, taken over by one process, stored and removed."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

from ..errors import Unavailable
from ..files import link_or_copy, locked_folder
from . import heartbeat
from .codec import MAGIC
from .kept_segments import KeptSegment, KeptSegments, Stored
from .segments import (
    END,
    UNFINISHED,
    Position,
    Record,
    read_acknowledged,
    read_timelines,
    remove_folder,
    save_acknowledged,
    segment_path,
)
from .spool import Spool

log = logging.getLogger("hermes.pgvector")

_UNFINISHED_AGE_S_MAX = 3600
_SPOOL_NAME = re.compile(f"({re.escape(UNFINISHED)})?[0-9a-f]{{32}}")


class OrphanSpool(Spool):
    """The folder of a dead process, locked by this one. Nothing is appended to it.

    `pending` counts the records that were taken and are not acknowledged.
    """

    def __init__(self, folder: Path, lock_fd: int, kept: KeptSegments | None = None) -> None:
        super().__init__(folder.parent, bytes_max=0, window_max=0, kept=kept)
        heartbeat.take_over(folder)
        self.folder, self._lock_fd = folder, lock_fd
        self._acknowledged = self._read = read_acknowledged(folder)
        self._stored = _stored(folder)
        # Nobody has counted what is on disk.
        self._end, self._on_disk = END, 1

    @property
    def pending(self) -> int:
        return len(self._held)

    @property
    def finished(self) -> bool:
        """Whether all readable records were taken and acknowledged."""
        return not self._held and not self._on_disk

    def take(self, limit: int) -> list[Record]:
        """The next records in order; an empty list means that no readable record is left."""
        try:
            return super().take(limit)
        except OSError as error:
            _log_unreadable(str(self.folder), error.strerror or type(error).__name__)
            self._on_disk = 0
            return []

    def _check_folder(self) -> Path | None:
        if self.folder and not self.folder.exists():
            log.error("the spool %s of a dead process was deleted: the events left in it are lost", self.folder)
            self._release()
        return self.folder


def orphans(folder: Path, kept: KeptSegments | None = None) -> Iterator[OrphanSpool]:
    """Lock and yield the spools of dead processes, oldest first. The caller stores and closes each.

    What was stored of them goes to `kept`; without it, it is deleted.
    """
    try:
        found = sorted((path for path in folder.iterdir() if _SPOOL_NAME.fullmatch(path.name)), key=_created_at)
    except OSError:
        return
    for path in found:
        if path.name.startswith(UNFINISHED):
            if time.time() - _created_at(path) > _UNFINISHED_AGE_S_MAX:
                remove_folder(path)
        elif orphan := _take_over(path, kept):
            yield orphan


def offer_again(kept: KeptSegments, timeline: str, days_max: int) -> int:
    """Make orphans of the kept segments that the server may lack, as it is on another timeline than at their time.

    Returns the number of their events. Those older than `days_max` days are deleted. Raises OSError.
    """
    events = 0
    with contextlib.suppress(Unavailable):  # another process does it now
        # Looked for first without the lock, which a home without kept segments has no folder for.
        if kept.lacking(timeline, days_max):
            with locked_folder(kept.folder):
                events = sum(_make_orphan(segment) for segment in kept.lacking(timeline, days_max))
    return events


def _make_orphan(kept: KeptSegment) -> int:
    """Make an orphan of a kept segment, and return the number of its events.

    The segment is there twice for a moment, so that a crash loses nothing; what is offered twice is stored once.
    """
    events = kept.path.read_bytes().count(MAGIC)
    unfinished = kept.path.parents[1] / f"{UNFINISHED}{uuid4().hex}"
    unfinished.mkdir(mode=0o700)
    try:
        link_or_copy(kept.path, segment_path(unfinished, 1))
        save_acknowledged(unfinished, Position(1, 0), (*kept.timelines, ""))
        os.close(os.open(unfinished / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        orphan = unfinished.rename(unfinished.with_name(unfinished.name.removeprefix(UNFINISHED)))
    except OSError:
        remove_folder(unfinished)
        raise
    with contextlib.suppress(FileNotFoundError):  # orphans are stored in the order of these times
        os.utime(orphan / "lock", ns=(kept.moved_at_ns, kept.moved_at_ns))
    kept.path.unlink(missing_ok=True)
    return events


@lru_cache(maxsize=1000)
def _log_unreadable(folder: str, reason: str) -> None:
    """Log it once, though the folder is tried again and again: it may become readable."""
    log.warning("the spool %s of a dead process cannot be read and is left as it is: %s", folder, reason)


def _stored(folder: Path) -> Stored:
    *before, current = read_timelines(folder) or ("",)
    with contextlib.suppress(OSError):
        return Stored(tuple(before), current, (folder / "acknowledged").stat().st_mtime)
    return Stored()


def _created_at(path: Path) -> float:
    """When the spool was made. The time of the folder itself changes with each acknowledgement."""
    try:
        return (path / "lock").stat().st_mtime
    except OSError:
        return time.time()


def _take_over(path: Path, kept: KeptSegments | None) -> OrphanSpool | None:
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # A crash can leave a folder without its lock; then it is empty.
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its owner may have stored and removed it since the lock was opened.
        os.stat(path / "lock")
        return OrphanSpool(path, fd, kept)
    except OSError:
        os.close(fd)
        return None
