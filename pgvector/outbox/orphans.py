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

from . import heartbeat
from .segments import (
    END,
    UNFINISHED,
    Record,
    read_acknowledged,
    read_records,
    remove_folder,
    remove_if_empty,
    save_acknowledged,
)

log = logging.getLogger("hermes.pgvector")

_UNFINISHED_AGE_S_MAX = 3600
_SPOOL_NAME = re.compile(f"({re.escape(UNFINISHED)})?[0-9a-f]{{32}}")


class OrphanSpool:
    """The folder of a dead process, locked by this one. For the writer's thread alone, but for `pending`.

    `pending` counts the records that were taken and are not acknowledged.
    """

    def __init__(self, folder: Path, lock_fd: int) -> None:
        self.folder = folder
        self.pending = 0
        self._lock_fd = lock_fd
        heartbeat.take_over(folder)
        self._acknowledged = self._cursor = read_acknowledged(folder)
        self._read_whole = False

    @property
    def finished(self) -> bool:
        """Whether all readable records were taken and acknowledged."""
        return self._read_whole and self.pending == 0

    def take(self, limit: int) -> list[Record]:
        """The next records in order; an empty list means that no readable record is left."""
        if self._read_whole:
            return []
        try:
            batch = read_records(self.folder, self._cursor, END, limit)
        except OSError as error:
            _log_unreadable(self.folder, error.strerror or type(error).__name__)
            batch = []
        if not batch and not self.folder.exists():
            log.error("the spool %s of a dead process was deleted: the events left in it are lost", self.folder)
        self._read_whole = not batch
        self._cursor = batch[-1].position if batch else self._cursor
        self.pending += len(batch)
        return batch

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these records, which must be the oldest that were taken."""
        if batch:
            self.pending -= len(batch)
            self._acknowledged = batch[-1].position
            with contextlib.suppress(OSError):
                save_acknowledged(self.folder, self._acknowledged)

    def close(self) -> None:
        """Remove the folder when all of it has been stored, else leave it to the next process."""
        remove_if_empty(self.folder, self._acknowledged)
        self.abandon()

    def abandon(self) -> None:
        """Release the lock, or in a forked child the inherited descriptor of it."""
        with contextlib.suppress(OSError):
            os.close(self._lock_fd)
        self._lock_fd = -1


def orphans(folder: Path) -> Iterator[OrphanSpool]:
    """Lock and yield the spools of dead processes, oldest first. The caller stores and closes each."""
    try:
        found = sorted((path for path in folder.iterdir() if _SPOOL_NAME.fullmatch(path.name)), key=_created_at)
    except OSError:
        return
    for path in found:
        if path.name.startswith(UNFINISHED):
            if time.time() - _created_at(path) > _UNFINISHED_AGE_S_MAX:
                remove_folder(path)
        elif orphan := _take_over(path):
            yield orphan


@lru_cache(maxsize=1000)
def _log_unreadable(folder: Path, reason: str) -> None:
    """Log it once, though the folder is tried again and again: it may become readable."""
    log.warning("the spool %s of a dead process cannot be read and is left as it is: %s", folder, reason)


def _created_at(path: Path) -> float:
    """When the spool was made. The time of the folder itself changes with each acknowledgement."""
    try:
        return (path / "lock").stat().st_mtime
    except OSError:
        return time.time()


def _take_over(path: Path) -> OrphanSpool | None:
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # A crash can leave a folder without its lock; then it is empty.
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return OrphanSpool(path, fd)
    except OSError:
        os.close(fd)
        return None
