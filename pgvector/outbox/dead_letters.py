"""What was set aside in a home: events that could not be stored, each in a file with the reason."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import BadArgument, BadEvent, Unavailable
from ..files import overwrite
from ..model import Event
from .codec import decode

log = logging.getLogger("hermes.pgvector")

# A file that was not written whole is left by a process that was killed; a younger one may still be at work.
TORN_AGE_S = 3600.0
SAME_TIME_NS = 100_000_000
UNREADABLE = "the file in which it was kept cannot be read"
PREFIX_CHARS_MIN = 4


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One of them. `id` names its file; `event` is None when it is damaged, `raw` is all that there is of it.

    `at` is when it was set aside, `size` what it takes in bytes.
    """

    id: str
    reason: str
    raw: str
    event: Event | None
    at: datetime
    size: int


def kept(folder: Path) -> Iterator[DeadLetter]:
    """All of them, in the order of their names, one in memory at a time."""
    for path in sorted(folder.glob("*.json")):
        item = read(folder, path.stem)
        if item is not None:  # else it was dropped meanwhile
            yield item


def read(folder: Path, name: str) -> DeadLetter | None:
    """The one with exactly this id; None when there is none."""
    path = folder / f"{name}.json"
    reason, raw = UNREADABLE, ""
    try:
        seen = path.stat()
        raw = path.read_text(encoding="utf-8", errors="replace")
        values = json.loads(raw)
        reason, raw = str(values["reason"]), str(values["event"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        log.debug("%s cannot be read", path)
    return DeadLetter(name, reason, raw, _event(raw), datetime.fromtimestamp(seen.st_mtime, UTC), seen.st_size)


def one(folder: Path, name: str) -> DeadLetter:
    """The one with this id, or whose id alone begins so. Raises BadArgument."""
    names = [path.stem for path in folder.glob("*.json")]
    beginning = [known for known in names if known.startswith(name)] if len(name) >= PREFIX_CHARS_MIN else []
    found = [name] if name in names else beginning
    if not found:
        raise BadArgument(f"no event {name!r} was set aside; see: hermes-pgvector spool list")
    if len(found) > 1:
        raise BadArgument(f"{len(found)} events that were set aside begin with {name!r}; give more of the id")
    item = read(folder, found[0])
    if item is None:
        raise BadArgument(f"event {found[0]} is not set aside any more")
    return item


def forget(folder: Path, name: str) -> bool:
    """Delete one for good; False when it is not there any more. Raises Unavailable."""
    try:
        (folder / f"{name}.json").unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"{folder / name}.json cannot be deleted: {error.strerror}") from None
    return True


class Room:
    """The room for them in a folder that is there. Safe for any thread; each process counts what it adds by itself."""

    def __init__(self, folder: Path, files_max: int, bytes_max: int) -> None:
        self._folder, self._files_max, self._bytes_max = folder, files_max, bytes_max
        self._taken: tuple[int, int] | None = None
        self._seen_ns = 0

    def keep(self, name: str, text: str, share: float) -> bool:
        """Keep one; False when this share of the room is full. Raises OSError."""
        files, size = _with(text, self._taken or self._count())
        if self._full(files, size, share) and self._changed():
            files, size = _with(text, self._count())
        if self._full(files, size, share):
            return False
        overwrite(self._folder / f"{name}.json", text)
        self._taken = files, size
        return True

    def _full(self, files: int, size: int, share: float) -> bool:
        return files > share * self._files_max or size > share * self._bytes_max

    def _changed(self) -> bool:
        """Whether room may have been made since the last count; to count takes longer than a hook should."""
        changed_ns = self._folder.stat().st_mtime_ns
        # A change right after another one may bear the same time.
        return changed_ns != self._seen_ns or time.time_ns() - changed_ns < SAME_TIME_NS

    def _count(self) -> tuple[int, int]:
        self._seen_ns = self._folder.stat().st_mtime_ns
        self._taken = _room_taken(self._folder)
        return self._taken


def _room_taken(folder: Path) -> tuple[int, int]:
    """How many events there are, and their bytes. Files that were never written whole are removed."""
    files = size = 0
    with os.scandir(folder) as found:
        for file in found:
            with contextlib.suppress(FileNotFoundError):
                seen = file.stat()
                if file.name.endswith(".json"):
                    files, size = files + 1, size + seen.st_size
                elif ".json." in file.name and time.time() - seen.st_mtime > TORN_AGE_S:
                    os.unlink(file.path)
    return files, size


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other commands away; agents go on setting aside. Raises Unavailable while another command is at work."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield  # nothing was ever set aside
        return
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Unavailable(f"another command works on {folder}; wait until it has ended") from None
        yield
    finally:
        os.close(fd)


def _with(text: str, taken: tuple[int, int]) -> tuple[int, int]:
    return taken[0] + 1, taken[1] + len(text)


def _event(raw: str) -> Event | None:
    try:
        event = decode(raw.encode("utf-8", "surrogatepass"))
    except BadEvent:
        return None
    return event if isinstance(event.theme, str) and isinstance(event.id, str) else None
