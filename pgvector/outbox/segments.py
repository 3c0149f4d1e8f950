"""The folder of a spool: a lock, numbered segments of records, and the acknowledged position.

A torn or damaged stretch of a segment is skipped up to the next record.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

from ..errors import BadEvent
from ..files import HOST_DISK_FULL, overwrite, sync_file
from ..model import Event
from .codec import HEADER, MAGIC, decode

UNFINISHED = ".new-"


class Position(NamedTuple):
    """The end of a record: segment number and byte offset in it."""

    segment: int
    offset: int


# Behind all records of a folder.
END = Position(sys.maxsize, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """A record and its position. `event` is None when it cannot be decoded; then `raw` holds the bytes."""

    position: Position
    event: Event | None
    raw: bytes = b""


def new_folder(parent: Path, segment: int) -> tuple[Path, int, int]:
    """A new folder with one empty segment, the descriptor of its lock, which is held, and of the segment.

    Raises OSError.
    """
    # Renamed once it is locked, so that no other process takes it for an orphan in between.
    unfinished = parent / f"{UNFINISHED}{uuid4().hex}"
    unfinished.mkdir(mode=0o700)
    opened: list[int] = []
    try:
        opened.append(os.open(unfinished / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        opened.append(open_segment(unfinished, segment))
        folder = unfinished.rename(parent / unfinished.name.removeprefix(UNFINISHED))
    except OSError:
        for fd in opened:
            os.close(fd)
        remove_folder(unfinished)
        raise
    return folder, opened[0], opened[1]


def segment_path(folder: Path, number: int) -> Path:
    """The file of one segment."""
    return folder / f"{number:08d}.log"


def open_segment(folder: Path, number: int) -> int:
    """A descriptor that appends to a segment, which is made when it does not exist. Raises OSError."""
    return os.open(segment_path(folder, number), os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def append_record(fd: int, record: bytes, begin: int, *, fsync: bool) -> None:
    """Write a record at the end of a segment, which is at `begin`.

    Raises OSError. Then, and at Ctrl-C, the segment is cut back; where that fails, too, readers skip the torn bytes.
    """
    try:
        if os.write(fd, record) != len(record):
            raise OSError(errno.ENOSPC, HOST_DISK_FULL)
        if fsync:
            os.fsync(fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, begin)
        raise


def segments(folder: Path, end: int = sys.maxsize) -> list[tuple[int, Path]]:
    """The segments of a folder before the number `end`, oldest first."""
    found = ((int(path.stem), path) for path in folder.glob("*.log") if path.stem.isdigit())
    return sorted((number, path) for number, path in found if number < end)


def sync_segments(folder: Path, numbers: Iterable[int]) -> list[int]:
    """Have segments of a folder survive a power loss; returns the numbers of those that are gone. Raises OSError."""
    gone = []
    for number in numbers:
        try:
            sync_file(segment_path(folder, number))
        except FileNotFoundError:
            gone.append(number)
    sync_file(folder)
    return gone


def read_records(folder: Path, start: Position, end: Position, limit: int) -> list[Record]:
    """Up to `limit` records after `start`. A damaged stretch is one record without an event. Raises OSError."""
    return list(islice(_records(folder, start, end), limit))


def _records(folder: Path, start: Position, end: Position) -> Iterator[Record]:
    for number, path in segments(folder):
        if start.segment <= number <= end.segment:
            offset = start.offset if number == start.segment else 0
            stop = end.offset if number == end.segment else path.stat().st_size
            with path.open("rb") as file:
                file.seek(offset)
                while offset < stop:
                    record = _read_record(file, number, offset, stop)
                    # Zeros are in the place of what was erased.
                    if record.event or not record.raw or record.raw.strip(b"\0"):
                        yield record
                    offset = record.position.offset


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
    """All bytes up to the next record, or to the end. No hook reported a torn record as durable."""
    file.seek(offset)
    stretch = file.read(stop - offset)
    if not stretch:
        return Record(Position(number, stop), None)
    following = stretch.find(MAGIC, 1)
    length = len(stretch) if following < 0 else following
    file.seek(offset + length)
    return Record(Position(number, offset + length), None, stretch[:length])


def read_acknowledged(folder: Path) -> Position:
    """The position up to which a folder has been stored; its beginning when that cannot be read."""
    try:
        values: Any = json.loads((folder / "acknowledged").read_text(encoding="ascii"))
        return Position(int(values["segment"]), int(values["offset"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Position(1, 0)


def read_timelines(folder: Path) -> tuple[str, ...]:
    """The timelines that the acknowledged records were stored on, the current one last; none when that is not known."""
    try:
        values: Any = json.loads((folder / "acknowledged").read_text(encoding="ascii"))
        return tuple(map(str, values["timelines"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def save_acknowledged(folder: Path, position: Position, timelines: Sequence[str] = ()) -> None:
    """Save the position up to which a folder has been stored, whole or not at all, and where. Raises OSError."""
    where = {"timelines": timelines} if timelines else {}
    overwrite(folder / "acknowledged", json.dumps({**position._asdict(), **where}))


def blank_acknowledged(folder: Path) -> int:
    """Overwrite the records that are stored already with zeros, and return how many bytes; their owner may run.

    A stored record stays in its segment until the segment is full, and nobody reads it again. Raises OSError.
    """
    start, blanked = read_acknowledged(folder), 0
    for number, path in segments(folder):
        if number <= start.segment:
            with contextlib.suppress(FileNotFoundError), path.open("r+b") as file:
                size = min(start.offset, path.stat().st_size) if number == start.segment else path.stat().st_size
                file.write(bytes(size))
                file.flush()
                os.fsync(file.fileno())
                blanked += size
    return blanked


def blank_events(folder: Path, events: Collection[str], end: Position) -> None:
    """Overwrite the records of these events, up to a position, with zeros. Raises OSError."""
    for number, path in segments(folder):
        begin = 0
        for record in read_records(folder, Position(number, 0), min(end, Position(number + 1, 0)), sys.maxsize):
            number_of_record, offset = record.position
            if number_of_record == number:
                if record.event and record.event.id in events:
                    with path.open("r+b") as file:
                        file.seek(begin)
                        file.write(bytes(offset - begin))
                begin = offset


def holds_records(folder: Path, start: Position) -> bool:
    """Whether a folder holds records behind the position. Raises OSError."""
    return bool(read_records(folder, start, END, 1))


def remove_folder(folder: Path) -> None:
    """Remove a folder, its lock last."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name != "lock":
                path.unlink(missing_ok=True)
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()
