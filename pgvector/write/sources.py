"""The spools that batches are taken from: the spool of this process and those of dead processes, the orphans."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from ..model import Delegated, TurnTaken
from ..outbox.counters import WriterStatus
from ..outbox.memory_queue import Outbox
from ..outbox.orphans import OrphanSpool, orphans
from ..outbox.segments import Record
from ..settings import Settings

log = logging.getLogger("hermes.pgvector")

ORPHANS_OPEN_MAX = 4

Source: TypeAlias = Outbox | OrphanSpool


class Sources:
    """Gives out records from the spool of this process and from orphans by turns. For the writer thread alone.

    `orphans_pending` and `orphans_done` are safe for any thread.
    """

    def __init__(self, spool: Outbox, folder: Path, settings: Settings, status: WriterStatus) -> None:
        self._spool, self._folder, self._settings, self._status = spool, folder, settings, status
        self._open: list[OrphanSpool] = []
        self._found: Iterator[OrphanSpool] | None = None
        self._look_at = 0.0
        self._own_next = False
        self._held_back: list[Record] = []

    @property
    def orphans_pending(self) -> int:
        """Events that were taken from orphans and are not settled yet."""
        return sum(orphan.pending for orphan in list(self._open))

    @property
    def orphans_done(self) -> bool:
        """Whether orphans have been looked for, and all that were found are settled."""
        looked = self._look_at > 0.0 and self._found is None
        return looked and all(orphan.finished for orphan in list(self._open))

    @property
    def more_later(self) -> bool:
        """Whether there are records that `take` can give out once others are settled."""
        return self._found is not None or bool(self._held_back)

    def open_orphans(self) -> None:
        """Close orphans that are settled and lock others, a few at a time: each takes a file descriptor."""
        for orphan in [orphan for orphan in self._open if orphan.finished]:
            self._open.remove(orphan)
            orphan.close()
        if self._found is None and time.monotonic() >= self._look_at:
            self._found = orphans(self._folder)
            self._look_at = time.monotonic() + self._settings.adopt_interval_s
        while self._found is not None and len(self._open) < ORPHANS_OPEN_MAX:
            if found := next(self._found, None):
                log.info("taking over the spool of a dead process: %s", found.folder.name)
                self._open.append(found)
            else:
                self._found = None

    def take(self) -> tuple[Source, list[Record]] | None:
        """The next records and the spool they are from; None when there are none now."""
        self._own_next = not self._own_next
        if self._own_next:
            return self._take_own() or self._take_orphaned()
        return self._take_orphaned() or self._take_own()

    def _take_own(self) -> tuple[Source, list[Record]] | None:
        # A change of an entry and the end of a session depend on the events before it, so they wait for the orphans.
        taken = self._held_back or self._spool.take(self._settings.batch_max)
        free = list(takewhile(_independent, taken)) if self._open else taken
        self._held_back = taken[len(free) :]
        return (self._spool, free) if free else None

    def _take_orphaned(self) -> tuple[Source, list[Record]] | None:
        for orphan in self._open:
            if taken := orphan.take(self._settings.batch_max):
                self._status.add(adopted=len(taken))
                return orphan, taken
        return None

    def give_back(self) -> None:
        """Leave every record that is not acknowledged to the next run, in this process or another."""
        self._held_back = []
        self._status.add(adopted=-self.orphans_pending)
        while self._open:
            self._open.pop().close()
        self._found, self._look_at = None, 0.0
        self._spool.rewind()

    def abandon(self) -> None:
        """Close the inherited locks in a forked child, so that the parent alone holds them."""
        for orphan in self._open:
            orphan.abandon()


def _independent(record: Record) -> bool:
    return record.event is None or isinstance(record.event, TurnTaken | Delegated)
