"""The spools of dead processes: found by their free lock, taken over by one living process, stored and removed."""

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

from ..model import Event
from . import heartbeat
from .codec import (
    UNBORN,
    Position,
    Record,
    read_acknowledged,
    read_records,
    remove_folder,
    remove_if_empty,
    save_acknowledged,
    segments,
)
from .spool import Spool

log = logging.getLogger("hermes.pgvector")

_UNBORN_AGE_S_MAX = 3600
_OURS = re.compile(f"({re.escape(UNBORN)})?[0-9a-f]{{32}}")


class OrphanSpool(Spool):
    """The folder of a dead process, locked by this one. It takes no new events."""

    def __init__(self, folder: Path, lock_fd: int) -> None:
        super().__init__(folder.parent, bytes_max=0, window_max=0)
        self._folder, self._lock_fd = folder, lock_fd
        heartbeat.take_over(folder)
        self._acked = self._cursor = read_acknowledged(folder)
        found = segments(folder)
        self._end = Position(found[-1][0], found[-1][1].stat().st_size) if found else self._acked
        self._on_disk = 1 if self._end > self._acked else 0

    def append(self, event: Event) -> bool:  # noqa: ARG002
        """Refuse: new events belong into the spool of the living process."""
        return False

    def take(self, limit: int) -> list[Record]:
        """The next records in order; an empty list means that all that can be read of the folder has been."""
        if self._folder is None or self._cursor == self._end:
            return []
        try:
            batch = read_records(self._folder, self._cursor, self._end, limit)
        except OSError as error:
            _log_unreadable(self._folder, error.strerror or type(error).__name__)
            batch = []
        if not batch and not self._folder.exists():
            log.error("memories were lost with the spool %s of a process that died: it was deleted", self._folder)
        self._cursor = batch[-1].position if batch else self._end
        self.pending += len(batch)
        return batch

    @property
    def finished(self) -> bool:
        """Whether all that can be read was taken and acknowledged."""
        return self._cursor == self._end and self.pending == 0

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these records."""
        if batch:
            self.pending = max(0, self.pending - len(batch))
            self._acked = batch[-1].position
            if self._folder is not None:
                with contextlib.suppress(OSError):
                    save_acknowledged(self._folder, self._acked)

    def close(self) -> None:
        """Remove the folder when all of it has been stored, else leave it to the next adopter."""
        if self._folder is not None:
            remove_if_empty(self._folder, self._acked, self._end)
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._lock_fd, self._folder = -1, None


def orphans(folder: Path) -> Iterator[OrphanSpool]:
    """Lock and yield the folders of dead processes, oldest first. The caller drains and closes each."""
    try:
        found = sorted((path for path in folder.iterdir() if _OURS.fullmatch(path.name)), key=_began_at)
    except OSError:
        return
    for path in found:
        if path.name.startswith(UNBORN):
            if time.time() - _began_at(path) > _UNBORN_AGE_S_MAX:
                remove_folder(path)
            continue
        adopted = _adopt(path)
        if adopted is not None:
            yield adopted


@lru_cache(maxsize=1000)
def _log_unreadable(folder: Path, reason: str) -> None:
    """Say it once, though the folder is adopted again and again: it may become readable."""
    log.warning("the spool %s of a process that died cannot be read and is left as it is: %s", folder, reason)


def _began_at(path: Path) -> float:
    """When the process that made the folder began to spool; the folder itself changes with each acknowledgement."""
    try:
        return (path / "lock").stat().st_mtime
    except OSError:
        return time.time()


def _adopt(path: Path) -> OrphanSpool | None:
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        # A crash can leave a folder without its lock; then there is nothing else in it.
        with contextlib.suppress(OSError):
            path.rmdir()
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return OrphanSpool(path, fd)
    except OSError:
        os.close(fd)
        return None
