"""Small private files, written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from uuid import uuid4

from .errors import DISK_FULL, BadArgument, Unavailable, cure

log = logging.getLogger("hermes.pgvector")

HOST_DISK_FULL = "the disk of this host is full"
# How file systems without hard links refuse one, such as FAT, some network shares, and those of Android.
NO_LINKS = frozenset({errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOSYS})


def reason(error: OSError) -> str:
    """Why a file could not be read or written, without its name."""
    return HOST_DISK_FULL if error.errno in DISK_FULL else error.strerror or type(error).__name__


def expanded(path: str) -> Path:
    """The path with its `~` replaced; one of an account that does not exist stays as it is, and is not found."""
    return Path(os.path.expanduser(path))


def new_file(path: str) -> Path:
    """The path of a file that a person wants to have written. Raises BadArgument when something is there."""
    target = expanded(path)
    if target.is_dir():
        raise BadArgument(f"{target} is a folder; give the path of a file in it")
    if target.exists():
        raise BadArgument(f"{target} exists; give another path, or delete it")
    return target


def not_written(path: Path, error: OSError) -> str:
    """That a file cannot be written, why, and what to do."""
    lacking = isinstance(error, FileNotFoundError | NotADirectoryError) and not path.parent.is_dir()
    if lacking:
        return f"{path} cannot be written: there is no folder {path.parent}; make it, or give another path"
    to_do = cure(error, "")
    return f"{path} cannot be written: {reason(error)}; {f'{to_do}, or ' if to_do else ''}give another path"


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents, readable by this user only. Raises OSError."""
    for path in reversed(folder.parents):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def create(path: Path, text: str) -> None:
    """Write a file unless it exists, so that the first of several processes wins. Raises OSError."""
    with _temporary(path, text) as temporary, contextlib.suppress(FileExistsError):
        link_or_copy(temporary, path)


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name, or copy it where there are no hard links. Raises OSError, and when `target` exists."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(source.read_bytes())


def overwrite(path: Path, text: str) -> None:
    """Write a file, in place of an existing one. Raises OSError."""
    with _temporary(path, text) as temporary:
        temporary.replace(path)


def read_or_create(path: Path, text: str, pattern: re.Pattern[str]) -> str:
    """The text of a file, in which `text` is written when it is missing or does not match. Raises OSError.

    Of several processes that find no file, or a damaged one, the first one wins.
    """
    if not read_matching(path, pattern):
        make_private(path.parent)
        create(path, text)
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever waited finds the file of the first one.
            if not read_matching(path, pattern):
                overwrite(path, text)
    return read_matching(path, pattern)


def read_matching(path: Path, pattern: re.Pattern[str]) -> str:
    """The text of a file, stripped; empty when it is missing or does not match. Raises OSError."""
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return ""
    return text if pattern.fullmatch(text) else ""


def sync_file(path: Path) -> None:
    """Have a file, or the names in a folder, survive a power loss. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Keep other commands out of a folder, if it exists. Raises Unavailable while another command holds it."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unavailable(f"another command works on {folder}; wait until it has ended") from None
        yield
    finally:
        os.close(fd)


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
    """A set of names that all processes of a home share: a folder of empty files, each named by the hash of a text.

    Adding or removing one file takes no lock and overwrites nothing of another process. Past `marks_max` the marks that
    were added first are forgotten. A change that cannot be written is tried again at the next call; until then, and
    without a readable folder, this process goes by what it knows. Safe for any thread.
    """

    def __init__(self, folder: Path, marks_max: int, meaning: str) -> None:
        self.folder, self._marks_max, self._meaning = folder, marks_max, meaning
        self._lock = threading.Lock()
        self._listed: set[str] = set()
        # Changes that are not written yet: whether the name is marked.
        self._unwritten: dict[str, bool] = {}

    def __contains__(self, name: str) -> bool:
        with self._lock:
            self._write()
            # Without listing the folder: a process that can open no more files still looks up a name.
            with contextlib.suppress(OSError):
                self.folder.stat()
                self._note(name, marked=(self.folder / name).exists())
            return self._is_marked(name)

    def marked_at(self, name: str) -> float:
        """When a name was marked, in seconds since 1970; 0 when that is not known."""
        try:
            return (self.folder / name).stat().st_mtime
        except OSError:
            return 0

    def names(self) -> frozenset[str]:
        """All marked names. Raises OSError when there is a folder that cannot be read."""
        with self._lock:
            self._write()
            self._list()
            return frozenset(filter(self._is_marked, {*self._listed, *self._unwritten}))

    def change(self, names: Iterable[str], *, marked: bool) -> None:
        """Mark names, or remove their marks. The log says when other processes do not know of it yet."""
        with self._lock:
            with contextlib.suppress(OSError):
                self._list()
            changed = [name for name in names if self._is_marked(name) != marked]
            self._unwritten.update(dict.fromkeys(changed, marked))
            for name in tuple(self._unwritten)[: -self._marks_max]:
                del self._unwritten[name]
            problem = self._write()
        if changed and problem:
            log.warning(
                "other processes do not know yet %s (%s): make %s writable", self._meaning, problem, self.folder
            )

    def abandon(self) -> None:
        """Renew the lock in a forked child, where the thread that held it does not exist."""
        self._lock = threading.Lock()

    def _is_marked(self, name: str) -> bool:
        return self._unwritten.get(name, name in self._listed)

    def _note(self, name: str, *, marked: bool) -> None:
        if marked:
            self._listed.add(name)
        else:
            self._listed.discard(name)

    def _list(self) -> None:
        # A folder that is lost says nothing of its marks.
        with contextlib.suppress(FileNotFoundError):
            self._listed = set(os.listdir(self.folder))

    def _write(self) -> str:
        """Write the changes, and return why that failed; empty when it did not."""
        if not self._unwritten:
            return ""
        try:
            if not self.folder.exists():
                # A new folder gets the marks of the one that is lost.
                self._unwritten = {**dict.fromkeys(self._listed, True), **self._unwritten}
            make_private(self.folder)
            for name, marked in tuple(self._unwritten.items()):
                _write_mark(self.folder / name, marked=marked)
                self._note(name, marked=marked)
                del self._unwritten[name]
        except OSError as error:
            return reason(error)
        with contextlib.suppress(OSError):
            self._remove_oldest()
            self._list()
        return ""

    def _remove_oldest(self) -> None:
        marks = tuple(self.folder.iterdir())
        if len(marks) > self._marks_max:
            for mark in sorted(marks, key=lambda mark: mark.stat().st_mtime_ns)[: -self._marks_max]:
                mark.unlink(missing_ok=True)


class LastingMarks(Marks):
    """Marks that are never forgotten. When there are `marks_max`, ALL is marked: every name, until somebody removes it.

    A process notices the marks of another one without listing them, however many there are.
    """

    ALL = "all"

    def __init__(self, folder: Path, marks_max: int, meaning: str) -> None:
        # One more for ALL, and one for a name that another process marks at the same time.
        super().__init__(folder, marks_max + 2, meaning)
        self._lasting_max = marks_max

    def __contains__(self, name: str) -> bool:
        return super().__contains__(name) or super().__contains__(self.ALL)

    def change(self, names: Iterable[str], *, marked: bool) -> None:
        """As `Marks.change`. While ALL is marked nothing can be marked beside it."""
        names = [name for name in names if super(LastingMarks, self).__contains__(name) != marked]
        if marked and names and super().__contains__(self.ALL):
            return
        super().change(names, marked=marked)
        if marked and len(self._listed | self._unwritten.keys()) >= self._lasting_max:
            log.error("%s holds %d marks, the most it may: all counts as marked", self.folder, self._lasting_max)
            super().change([self.ALL], marked=True)

    def _remove_oldest(self) -> None:
        """None is ever removed."""


def _write_mark(path: Path, *, marked: bool) -> None:
    if not marked:
        path.unlink(missing_ok=True)
        return
    path.touch(0o600)
    # The kernel's own time stamps are too coarse to order the marks.
    at = time.time_ns()
    os.utime(path, ns=(at, at))


def mark_name(text: str) -> str:
    """The name of the mark for a text: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
