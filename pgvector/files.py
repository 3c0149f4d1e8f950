"""Small private files, written whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, readable by this user only. Raises OSError."""
    for path in reversed(folder.parents):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def create(path: Path, text: str) -> None:
    """Write a file unless it exists, so that the first of several processes wins. Raises OSError."""
    with _temporary(path, text) as temporary, contextlib.suppress(FileExistsError):
        os.link(temporary, path)


def overwrite(path: Path, text: str) -> None:
    """Write a file, in place of an existing one. Raises OSError."""
    with _temporary(path, text) as temporary:
        temporary.replace(path)


def append(path: Path, text: str) -> None:
    """Append to a file, which is made when it does not exist. Raises OSError.

    Short texts of several processes do not mix.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def read(path: str, bytes_max: int) -> bytes | None:
    """The whole file; None when it is larger than `bytes_max`. Raises OSError."""
    with open(path, "rb") as file:
        content = file.read(bytes_max + 1)
    return content if len(content) <= bytes_max else None


@contextlib.contextmanager
def _temporary(path: Path, text: str) -> Iterator[Path]:
    """A temporary file beside `path` with this text. It is deleted afterwards, so that a full disk keeps no remains."""
    temporary = path.with_name(f"{path.name}.{uuid4().hex}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


class Marks:
    """A folder of empty files, each named by the hash of a text: a set that all processes of a home share.

    Adding or removing one file takes no lock and overwrites nothing of another process. Past `marks_max` the marks that
    were added first are removed.
    """

    def __init__(self, folder: Path, marks_max: int) -> None:
        self.folder, self._marks_max = folder, marks_max

    def add(self, names: Iterable[str]) -> None:
        """Add marks. Raises OSError."""
        make_private(self.folder)
        for name in names:
            path = self.folder / name
            path.touch(0o600)
            # The kernel's own time stamps are too coarse to order the marks.
            at = time.time_ns()
            os.utime(path, ns=(at, at))
        with contextlib.suppress(OSError):
            self._remove_oldest()

    def remove(self, name: str) -> None:
        """Remove a mark, if it is there. Raises OSError."""
        (self.folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        """All marks; none when there is no folder. Raises OSError."""
        try:
            return os.listdir(self.folder)
        except FileNotFoundError:
            return []

    def _remove_oldest(self) -> None:
        marks = tuple(self.folder.iterdir())
        if len(marks) > self._marks_max:
            for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime_ns)[: -self._marks_max]:
                mark.unlink(missing_ok=True)


def mark_name(text: str) -> str:
    """The name of the mark for a text: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
