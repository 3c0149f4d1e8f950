"""What was set aside in a home: events that could not be stored, each in a file with the reason."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .errors import BadArgument, BadEvent, Unavailable
from .model import Event
from .records import decode

log = logging.getLogger("hermes.pgvector")

UNREADABLE = "the file in which it was kept cannot be read"
PREFIX_CHARS_MIN = 4


@dataclass(frozen=True, slots=True)
class SetAside:
    """One of them. `id` names its file; `event` is None when it is damaged, `raw` is all that there is of it.

    `at` is when it was set aside, `size` what it takes in bytes.
    """

    id: str
    reason: str
    raw: str
    event: Event | None
    at: datetime
    size: int


def kept(folder: Path) -> Iterator[SetAside]:
    """All of them, in the order of their names, one in memory at a time."""
    for path in sorted(folder.glob("*.json")):
        item = read(folder, path.stem)
        if item is not None:  # else it was dropped meanwhile
            yield item


def read(folder: Path, name: str) -> SetAside | None:
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
    return SetAside(name, reason, raw, _event(raw), datetime.fromtimestamp(seen.st_mtime, UTC), seen.st_size)


def one(folder: Path, name: str) -> SetAside:
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


def _event(raw: str) -> Event | None:
    try:
        event = decode(raw.encode("utf-8", "surrogatepass"))
    except BadEvent:
        return None
    return event if isinstance(event.theme, str) and isinstance(event.id, str) else None
