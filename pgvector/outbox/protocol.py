"""What the writer asks of a queue of events."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ..model import Event
from .segments import Record


class Source(Protocol):
    """Events in order. For the writer's thread alone, but for `pending`."""

    @property
    def folder(self) -> Path | None:
        """The folder on disk; None when there is none."""

    @property
    def pending(self) -> int:
        """The number of events that are not acknowledged. Any thread may read it."""

    def take(self, limit: int) -> list[Record]:
        """The next records in order, at most `limit`. Each is given out once. Raises OSError."""

    def acknowledge(self, batch: list[Record]) -> None:
        """Forget these records, which must be the oldest that were taken."""

    def close(self) -> None:
        """Release the files."""

    def abandon(self) -> None:
        """Release the files in a forked child, and leave the events to the parent."""


class Outbox(Source, Protocol):
    """The queue to which the hooks of this process append. `append` and the two counts are safe for any thread."""

    @property
    def appended(self) -> int:
        """The number of all events that were appended."""

    @property
    def left_behind(self) -> int:
        """The number of appended events that are not for this process to store any more.

        They wait in a closed folder for the next process, or were lost with a folder that somebody deleted.
        """

    def append(self, event: Event) -> bool:
        """Add an event at the end; False when the queue refuses it."""

    def rewind(self) -> None:
        """Give out again, from the oldest on, what was taken and not acknowledged."""

    def ensure_folder(self) -> Path | None:
        """The folder, made now if it does not exist; None when the queue is in memory. Raises OSError."""
