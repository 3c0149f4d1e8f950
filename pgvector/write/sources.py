"""The spools that batches are taken from: the spool of this process and those of dead processes, the orphans."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from itertools import takewhile

from ..files import reason
from ..model import Delegated, TurnTaken
from ..outbox.orphans import OrphanSpool, offer_again, orphans
from ..outbox.segments import Record
from ..outbox.spool import Spool
from ..settings import Settings

log = logging.getLogger("hermes.pgvector")

KEPT_LOOK_S = 5.0


class Sources:
    """Gives out records from the spool of this process and from one orphan after the other, by turns.

    For the writer thread alone, but `take_over`, `orphans_pending` and `orphans_done` are safe for any thread.
    """

    def __init__(self, spool: Spool, settings: Settings) -> None:
        self._spool, self._settings = spool, settings
        self._orphan: OrphanSpool | None = None
        self._found: Iterator[OrphanSpool] | None = None
        self._given: deque[OrphanSpool] = deque()
        self._look_at = self._kept_look_at = 0.0
        self._own_next = False
        self._timeline = ""

    @property
    def orphans_pending(self) -> int:
        """Events that were taken from orphans and are not settled yet."""
        orphan = self._orphan
        return orphan.pending if orphan else 0

    @property
    def orphans_done(self) -> bool:
        """Whether orphans have been looked for, and all that were found are settled."""
        return self._look_at > 0.0 and self._found is None and not self._given and self._orphan is None

    def take_over(self, orphan: OrphanSpool) -> None:
        """Store what is in an orphan that this process has locked, before those that it finds."""
        self._given.append(orphan)

    def next_orphan(self) -> None:
        """Close the orphan when it is settled, and lock the next one; look for orphans every `adopt_interval_s`."""
        if self._orphan:
            if not self._orphan.finished:
                return
            self._orphan.close()
            self._orphan = None
        if self._given:
            # In this order, because it must not look as if all were done.
            self._orphan = self._given[0]
            self._given.popleft()
            return
        if self._found is None and time.monotonic() >= self._look_at:
            self._found = orphans(self._spool.parent, self._spool.kept)
            self._look_at = time.monotonic() + self._settings.adopt_interval_s
        if self._found is not None:
            self._orphan = next(self._found, None)
            if self._orphan:
                log.info("taking over the spool of a dead process: %s", self._orphan.folder)
            else:
                self._found = None

    def note_timeline(self, timeline: str) -> None:
        """Note which timeline the server is on. What was stored on another one, and may be lost, is offered again."""
        changed = timeline != self._timeline
        if not timeline or not (changed or time.monotonic() >= self._kept_look_at):
            return
        self._kept_look_at = time.monotonic() + KEPT_LOOK_S
        for spool in filter(None, (self._spool, self._orphan)):
            spool.note_timeline(timeline)
        self._spool.delete_stored()
        try:
            events = (
                offer_again(self._spool.kept, timeline, self._settings.event_ledger_days) if self._spool.kept else 0
            )
        except OSError as error:
            log.warning("stored events that the server may have lost cannot be offered again now: %s", reason(error))
            return
        self._timeline = timeline
        if events:
            log.warning("the server is on another timeline: %d events that it may have lost are offered again", events)
            self._look_at = 0.0

    def take(self) -> tuple[Spool, list[Record]] | None:
        """The next records and the spool they are from; None when there are none now."""
        self._own_next = not self._own_next
        for own in (self._own_next, not self._own_next):
            spool = self._spool if own else self._orphan
            if spool and (taken := self._take(spool)):
                return spool, taken
        return None

    def _take(self, spool: Spool) -> list[Record]:
        taken = spool.take(self._settings.batch_max)
        if spool is self._orphan or self._orphan is None:
            return taken
        # A change of an entry and the end of a session depend on the events before it, so they wait for the orphans.
        free = list(takewhile(_independent, taken))
        spool.rewind(len(taken) - len(free))
        return free

    def give_back(self) -> None:
        """Leave every record that is not acknowledged to the next run, in this process or another."""
        while self._orphan or self._given:
            (self._orphan or self._given.popleft()).close()
            self._orphan = None
        self._found, self._look_at = None, 0.0
        self._spool.rewind()

    def abandon(self) -> None:
        """Close the inherited files in a forked child, so that the parent alone holds their locks."""
        self._spool.abandon()
        if self._orphan:
            self._orphan.abandon()


def _independent(record: Record) -> bool:
    return record.event is None or isinstance(record.event, TurnTaken | Delegated)
