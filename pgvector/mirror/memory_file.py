"""MEMORY.md or USER.md, locked as the host locks it, backed up, and replaced in one step.

Only a relief writes these files, see `relief.py`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ..errors import Refused, Unavailable
from ..files import make_private, overwrite, read, reason, sync_file
from .entries import DELIMITER, parse_all

POLL_S = 0.02


class MemoryFile:
    """A memory file as it was read. `entries` are those in it, repeated ones too, `changed_at` is its time.

    To change it, it must be `locked`. Making one raises Refused when it cannot be read as a list of entries.
    """

    def __init__(self, path: Path, bytes_max: int) -> None:
        self.path = path
        # A link stays a link: the host replaces the file that it points to, too.
        self._file = Path(os.path.realpath(path))
        self._new = self._file.with_name(f".{path.name}.pgvector")
        try:
            self.status = path.stat()
            content = read(str(path), bytes_max)
            self._text = "" if content is None else content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"{path} cannot be read: {_reason(error)}; nothing is changed") from None
        if content is None:
            raise Refused(f"{path} has more than {bytes_max} bytes; nothing is changed")
        self.entries = parse_all(self._text)
        self.changed_at = datetime.fromtimestamp(self.status.st_mtime, UTC)

    def back_up(self, folder: Path, backups_max: int) -> Path:
        """Copy the file into a private folder, which keeps the newest `backups_max` copies. Raises Unavailable."""
        backup = folder / f"{self.path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        try:
            make_private(folder)
            overwrite(backup, self._text)
            sync_file(backup)
            sync_file(folder)
            for old in sorted(folder.glob(f"{self.path.name}.*"))[:-backups_max]:
                old.unlink(missing_ok=True)
        except OSError as error:
            raise Unavailable(f"{folder} cannot be written: {_reason(error)}; nothing is changed") from None
        return backup

    def prepare(self, entries: Sequence[str]) -> None:
        """Write what the file is to hold beside it, with its owner and mode. Raises Unavailable."""
        try:
            # A killed process may have left it. Nobody else writes it while the lock is held.
            self._new.unlink(missing_ok=True)
            fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8", newline="") as file:
                file.write(DELIMITER.join(entries))
                file.flush()
                _own_as(fd, self.status)
                os.fchmod(fd, self.status.st_mode & 0o777)
                os.fsync(fd)
        except OSError as error:
            self.discard()
            raise Unavailable(f"{self.path} cannot be replaced: {_reason(error)}; nothing is changed") from None

    def replace(self) -> None:
        """Put the prepared file in the place of this one. Raises Unavailable."""
        try:
            self._new.replace(self._file)
        except OSError as error:
            mounted = "; mount its folder in its place" if error.errno == errno.EBUSY else ""
            raise Unavailable(f"{self.path} cannot be replaced: {_reason(error)}{mounted}") from None
        with contextlib.suppress(OSError):
            sync_file(self._file.parent)

    def discard(self) -> None:
        """Delete the prepared file, if it is there."""
        with contextlib.suppress(OSError):
            self._new.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, wait_s: float, bytes_max: int) -> Iterator[MemoryFile]:
    """A memory file, which must exist, under the lock that the host's memory tool takes for each change of it.

    Raises Unavailable when another process holds the lock for more than `wait_s` seconds.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"{lock} cannot be opened: {_reason(error)}; nothing is changed") from None
    try:
        _wait_for(fd, lock, wait_s)
        file = MemoryFile(path, bytes_max)
        _own_as(fd, file.status)
        try:
            yield file
        finally:
            file.discard()
    finally:
        # Closing is not enough: a child that was forked meanwhile has a copy of the descriptor.
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _wait_for(fd: int, lock: Path, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(f"another process holds {lock} for {wait_s:g} s; nothing is changed") from None
        time.sleep(POLL_S)


def _own_as(fd: int, status: os.stat_result) -> None:
    """Give a file that root has made to the owner of the memory file, whose agents must be able to open it."""
    if os.geteuid() == 0:
        os.fchown(fd, status.st_uid, status.st_gid)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else reason(error)
