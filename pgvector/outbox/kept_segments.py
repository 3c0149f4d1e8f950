"""Kept segments: events that are stored, kept for a while in case a failover to a lagging standby loses them.

The folder `.kept` beside the spools of a home holds a file for each segment. Its name has the time of its move, which
orders the segments, and the timelines that the events were stored on. Its own time is when the last one was stored.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from ..files import make_private

FOLDER = ".kept"
TIMELINES_MAX = 5


class KeptSegment(NamedTuple):
    """A segment, and the timelines that its events were stored on.

    `moved_at_ns` is when it was moved here, `stored_at` when the last event was stored, both since the epoch.
    """

    moved_at_ns: int
    path: Path
    timelines: tuple[str, ...]
    stored_at: float
    bytes: int


@dataclass(slots=True)
class Stored:
    """Where the stored records of a spool are: all on the timelines `before`, and since then on the `current` one.

    `at` is when the last one was stored, in seconds since the epoch.
    """

    before: tuple[str, ...] = ()
    current: str = ""
    at: float = 0.0

    @property
    def timelines(self) -> tuple[str, ...]:
        """All timelines, as they are saved; none before the first one is known."""
        return (*self.before, self.current) if self.before or self.current else ()


class KeptSegments:
    """The kept segments of a home, at most `bytes_max` bytes, each for `keep_s` seconds; with 0 none is kept.

    Safe for several processes. `bytes` is what this process knows of their size. Methods raise OSError.
    """

    def __init__(self, spools: Path, *, keep_s: float, bytes_max: int) -> None:
        self.folder, self.keep_s, self.bytes = spools / FOLDER, keep_s, 0
        self._bytes_max = bytes_max

    def add(self, segment: Path, stored: Stored) -> None:
        """Move a segment here. It is deleted when nothing is kept, or no timeline is known."""
        named = [timeline for timeline in dict.fromkeys(stored.timelines) if timeline][-TIMELINES_MAX:]
        size = segment.stat().st_size if segment.exists() else 0
        try:
            if named and self.keep_s and size:
                os.utime(segment, (stored.at, stored.at))
                make_private(self.folder)
                segment.rename(self.folder / f"{time.time_ns()}.{uuid4().hex}.{'+'.join(named)}.log")
                self.bytes += size
        finally:
            segment.unlink(missing_ok=True)
        if self.bytes > self._bytes_max:
            self.shrink(self._bytes_max)

    def add_beginning(self, segment: Path, length: int, stored: Stored) -> None:
        """Copy the first `length` bytes of a segment here, if it exists."""
        if length and self.keep_s and segment.exists():
            with segment.open("rb") as file:
                content = file.read(length)
            copy = segment.with_name(f"{uuid4().hex}.copy")
            try:
                fd = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(fd, "wb") as file:
                    file.write(content)
                self.add(copy, stored)
            finally:
                copy.unlink(missing_ok=True)

    def shrink(self, bytes_max: int) -> int:
        """Delete the oldest segments until the others have at most so many bytes; returns how many bytes are freed."""
        found = self._all()
        before = self.bytes = sum(segment.bytes for segment in found)
        for segment in found:
            if self.bytes > bytes_max:
                segment.path.unlink(missing_ok=True)
                self.bytes -= segment.bytes
        return before - self.bytes

    def lacking(self, timeline: str, days_max: int) -> list[KeptSegment]:
        """The segments whose events were not stored on this timeline, the oldest first.

        Others are deleted when they were kept long enough, and all after `days_max` days.
        """
        found, left_bytes, lacking = self._all(), 0, []
        for segment in found:
            age_s = time.time() - segment.stored_at
            keep_s = self.keep_s if timeline in segment.timelines else days_max * 86_400
            if age_s > keep_s:
                segment.path.unlink(missing_ok=True)
                continue
            left_bytes += segment.bytes
            if timeline not in segment.timelines:
                lacking.append(segment)
        self.bytes = left_bytes
        return lacking

    def _all(self) -> list[KeptSegment]:
        found = []
        for path in self.folder.glob("*.log"):
            # Another process may delete it meanwhile, and a file of another name is not ours.
            with contextlib.suppress(FileNotFoundError, ValueError):
                moved_at_ns, _, timelines, _ = path.name.split(".")
                status, named = path.stat(), tuple(timelines.split("+"))
                found.append(KeptSegment(int(moved_at_ns), path, named, status.st_mtime, status.st_size))
        return sorted(found)


def clear(spools: Path) -> int:
    """Delete all kept segments of a home; returns how many. Raises OSError."""
    count = 0
    for path in (spools / FOLDER).glob("*.log"):
        path.unlink(missing_ok=True)
        count += 1
    return count


def drop(segments: Iterable[tuple[int, Path]], kept: KeptSegments | None, stored: Stored) -> None:
    """Move numbered segments of a spool to `kept`; without it, delete them. Raises OSError."""
    for _, path in segments:
        kept.add(path, stored) if kept else path.unlink(missing_ok=True)
