"""The spool folder of one process: how events become bytes in its segments, and how they are read back.

A record is `magic, length, crc32` and a JSON payload. A torn or damaged stretch is passed over up to the next magic.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO
from uuid import uuid4

from ..errors import BadEvent
from ..model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Withdrawn

_ENCODER = json.JSONEncoder(default=str)

UNBORN = ".new-"
MAGIC = b"\xf5hm1"
HEADER = struct.Struct("<4sII")

_KINDS: dict[str, type[Event]] = {
    kind.__name__: kind for kind in (Add, Replace, Remove, TurnTaken, SessionEnded, Withdrawn, Delegated)
}


def encode(event: Event) -> bytes:
    """An event as JSON bytes. Lone surrogates survive; values that JSON does not know become their text.

    Metadata that JSON cannot hold at all (it contains itself, say) is replaced by a marker.
    """
    values = {item.name: getattr(event, item.name) for item in fields(event)}
    values = {"kind": type(event).__name__, **values, "at": event.at.isoformat()}
    try:
        text = _ENCODER.encode(values)
    except (TypeError, ValueError, RuntimeError) as error:
        text = json.dumps({**values, "metadata": {"dropped": f"not JSON ({type(error).__name__})"}})
    return text.encode("ascii")


def decode(payload: bytes) -> Event:
    """The inverse of `encode`. Raises BadEvent when the payload is not one of ours."""
    try:
        values = json.loads(payload)
        kind = _KINDS[values.pop("kind")]
        values["at"] = datetime.fromisoformat(values["at"])
        if "turns" in values:
            values["turns"] = tuple((str(user), str(assistant)) for user, assistant in values["turns"])
        for name in ("surviving", "ancestors", "standing", "continued"):
            if name in values:
                values[name] = tuple(values[name])
        return kind(**values)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadEvent(f"a spooled record of {len(payload)} bytes cannot be read ({type(error).__name__})") from None


def frame(event: Event) -> bytes:
    """One whole record, to be written by a single call."""
    payload = encode(event)
    return HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


class Position(NamedTuple):
    """The end of a record: segment number and byte offset in it."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record read from the spool: its event, or its raw bytes when they cannot be read."""

    position: Position
    event: Event | None
    raw: bytes = b""


def private_file(path: Path) -> TextIO:
    """A file of ASCII text for this user alone, opened to be written anew. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    return os.fdopen(fd, "w", encoding="ascii")


def segment_path(folder: Path, number: int) -> Path:
    """The file of one segment."""
    return folder / f"{number:08d}.log"


def open_segment(folder: Path, number: int) -> int:
    """A descriptor that appends to a segment, which is made when it is not there. Raises OSError."""
    return os.open(segment_path(folder, number), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def open_to_read(folder: Path, number: int) -> int:
    """A descriptor of a segment that is there; -1 when it cannot be opened."""
    try:
        return os.open(segment_path(folder, number), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def new_folder(parent: Path, segment: int, content: bytes, older: Mapping[int, int]) -> tuple[Path, int, int]:
    """A new folder with a segment, and the descriptors of its lock, which is held, and of the segment.

    `older` are the descriptors of segments to be copied into it, by their numbers. Raises OSError.
    """
    # The folder gets its name only once it is locked: nobody can take it for an orphan in between.
    fresh = parent / f"{UNBORN}{uuid4().hex}"
    fresh.mkdir(mode=0o700)
    opened: list[int] = []
    try:
        opened.append(os.open(fresh / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.append(open_segment(fresh, segment))
        with open(opened[1], "wb", closefd=False) as file:
            file.write(content)
        for number, fd in older.items():
            with open(fd, "rb", closefd=False) as source, open(open_segment(fresh, number), "wb") as copy:
                source.seek(0)
                shutil.copyfileobj(source, copy)
        folder = fresh.rename(parent / fresh.name.removeprefix(UNBORN))
    except OSError:
        for fd in opened:
            os.close(fd)
        remove_folder(fresh)
        raise
    return folder, opened[0], opened[1]


def segments(folder: Path) -> list[tuple[int, Path]]:
    """The segments of a folder, oldest first."""
    return sorted((int(path.stem), path) for path in folder.glob("*.log") if path.stem.isdigit())


def read_records(folder: Path, start: Position, end: Position, limit: int) -> list[Record]:
    """Up to `limit` records after `start`. A damaged stretch comes out as one record without an event."""
    batch: list[Record] = []
    for number, path in segments(folder):
        if number < start.segment:
            continue
        if number > end.segment:
            break
        offset = start.offset if number == start.segment else 0
        stop = end.offset if number == end.segment else path.stat().st_size
        with path.open("rb") as file:
            file.seek(offset)
            while offset < stop and len(batch) < limit:
                taken = _read_record(file, number, offset, stop)
                batch.append(taken)
                offset = taken.position.offset
        if len(batch) >= limit:
            break
    return batch


def _read_record(file: BinaryIO, number: int, offset: int, stop: int) -> Record:
    header = file.read(HEADER.size)
    if len(header) == HEADER.size:
        magic, length, checksum = HEADER.unpack(header)
        if magic == MAGIC and offset + HEADER.size + length <= stop:
            payload = file.read(length)
            position = Position(number, offset + HEADER.size + length)
            if zlib.crc32(payload) == checksum:
                try:
                    return Record(position, decode(payload))
                except BadEvent:
                    return Record(position, None, payload)
    return _skip_damage(file, number, offset, stop)


def _skip_damage(file: BinaryIO, number: int, offset: int, stop: int) -> Record:
    """Everything up to the next record, or to the end: what is torn there was never acknowledged to a hook."""
    file.seek(offset)
    stretch = file.read(stop - offset)
    if not stretch:
        return Record(Position(number, stop), None)
    following = stretch.find(MAGIC, 1)
    length = len(stretch) if following < 0 else following
    file.seek(offset + length)
    return Record(Position(number, offset + length), None, stretch[:length])


def read_acknowledged(folder: Path) -> Position:
    """Up to where a folder has been stored; its beginning when that is not known."""
    try:
        values: Any = json.loads((folder / "acknowledged").read_text(encoding="ascii"))
        return Position(int(values["segment"]), int(values["offset"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Position(1, 0)


def save_acknowledged(folder: Path, position: Position) -> None:
    """Note, at once or not at all, up to where a folder has been stored. Raises OSError."""
    fresh = folder / "acknowledged.new"
    with private_file(fresh) as file:
        json.dump({"segment": position.segment, "offset": position.offset}, file)
    fresh.rename(folder / "acknowledged")


def remove_if_empty(folder: Path, start: Position, end: Position) -> None:
    """Remove the folder unless records stand between the two positions, which may lie in different segments."""
    with contextlib.suppress(OSError):
        if not read_records(folder, start, end, 1):
            remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove the folder of a process, its lock last."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name != "lock":
                path.unlink(missing_ok=True)
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()
