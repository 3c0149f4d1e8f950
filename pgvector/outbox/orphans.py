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
from .segments import END, UNFINISHED, Record, read_acknowledged, remove_folder
from .spool import Spool

log = logging.getLogger("hermes.pgvector")

_UNFINISHED_AGE_S_MAX = 3600
_SPOOL_NAME = re.compile(f"({re.escape(UNFINISHED)})?[0-9a-f]{{32}}")


class OrphanSpool(Spool):
    """The folder of a dead process, locked by this one. Nothing is appended to it.

    `pending` counts the records that were taken and are not acknowledged.
    """

    def __init__(self, folder: Path, lock_fd: int) -> None:
        super().__init__(folder.parent, bytes_max=0, window_max=0)
        heartbeat.take_over(folder)
        self.folder, self._lock_fd = folder, lock_fd
        self._acknowledged = self._read = read_acknowledged(folder)
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
def _log_unreadable(folder: str, reason: str) -> None:
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
        # Its owner may have stored and removed it since the lock was opened.
        os.stat(path / "lock")
        return OrphanSpool(path, fd)
    except OSError:
        os.close(fd)
        return None
