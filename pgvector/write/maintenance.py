"""Adds words to rows, counts common words, deletes what is old, moves rows of linked accounts: each by one process."""

from __future__ import annotations

import math
import time

from ..settings import Settings
from ..store import person_links, renames, upkeep
from ..store.connection.database import Database
from ..text.theme_names import hidden_pattern
from .retention import Retention

LEASE_S = 10.0
RETRY_S = 5.0
ROWS_MAX = 64
STEP_S = 0.25
# The part of its time that this may keep the server busy, so that recalls are as quick as without it.
SHARE = 0.25
COUNT_INTERVAL_S = 120.0
PRUNE_INTERVAL_S = 3600.0
ACCOUNTS_MAX = 10


class Maintenance:
    """Works in small steps, for one thread. After a step it rests, so that it is busy for `share` of the time.

    A step has up to ROWS_MAX rows, fewer after one that took longer than STEP_S seconds: events wait for it.
    `rows_done` counts the rows that got their words.
    """

    def __init__(self, database: Database, settings: Settings, *, share: float = SHARE) -> None:
        self._database, self._settings, self._share = database, settings, share
        self._words_lease = upkeep.Lease(upkeep.UNWORDED_LEASE, LEASE_S)
        self._count_lease = upkeep.Lease(upkeep.WORDS_LEASE, COUNT_INTERVAL_S)
        self._prune_lease = upkeep.Lease(upkeep.PRUNE_LEASE, PRUNE_INTERVAL_S)
        self._retention = Retention(database, settings)
        self._wanted = self._changed = False
        self._rows_max = ROWS_MAX
        self._next_at = self._count_at = 0.0
        self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        self.rows_done = 0

    @property
    def wanted(self) -> bool:
        """Whether rows may lack words, as far as this process knows."""
        return self._wanted

    @property
    def pause_s(self) -> float:
        """Seconds until the next step; infinite while there is no need for one."""
        return max(0.0, self._next_at - time.monotonic()) if self._wanted else math.inf

    def run_soon(self) -> None:
        """Look for rows without words at the next step."""
        self._wanted = True

    def rows_changed(self) -> None:
        """Note that rows were stored: how common words are may have changed."""
        self._changed = True

    def step(self) -> bool:
        """Do a part of what is due; returns whether there was something. Raises PgvectorError; call it again later."""
        started = time.monotonic()
        if started < self._next_at:
            return False
        self._next_at = started + RETRY_S  # when this fails
        done = (self._wanted and self._add_words()) or (self._changed and self._count_words()) or self._forget_old()
        took_s = time.monotonic() - started
        self._rows_max = max(1, self._rows_max // 2) if took_s > STEP_S else min(ROWS_MAX, 2 * self._rows_max)
        self._next_at = time.monotonic() + took_s * (1 / self._share - 1)
        return done

    def stop(self) -> None:
        """Leave the rest to another process of the fleet."""
        for lease in (self._words_lease, self._count_lease):
            lease.release_soon(self._database)
        self._retention.stop()

    def _add_words(self) -> bool:
        with self._database.transaction() as connection:
            # While another process does it, the next look for such rows sets this again.
            self._wanted = self._words_lease.claim(connection)
            added = upkeep.add_words(connection, self._rows_max) if self._wanted else 0
            if self._wanted and not added:
                self._wanted = False
                self._words_lease.release(connection)
        self.rows_done += added
        self._changed |= added > 0
        return added > 0

    def _count_words(self) -> bool:
        if time.monotonic() < self._count_at:
            return False
        self._count_at = time.monotonic() + COUNT_INTERVAL_S
        with self._database.transaction() as connection:
            if not self._count_lease.claim(connection):
                return False
            hidden = hidden_pattern(self._settings.bench_themes)
            counted = upkeep.count_words(connection, self._settings.word_candidates_max, hidden)
        if counted:
            self._count_at = 0.0
        self._changed = counted
        return counted

    def _forget_old(self) -> bool:
        if not self._retention.wanted:
            return self._prune()
        deleted = self._retention.step(self._rows_max)
        self._changed |= deleted > 0
        return True

    def _prune(self) -> bool:
        if time.monotonic() < self._prune_at:
            return False
        self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        with self._database.connection() as connection:
            holds = self._prune_lease.claim(connection)
            if holds:
                upkeep.prune_events(connection, self._settings.event_ledger_days)
                upkeep.prune_history(connection, self._settings.history_days)
                upkeep.prune_facts(connection, self._settings.history_days)
                upkeep.prune_expired(connection)
        if holds:
            self._move_rows_of_persons()
        return True

    def _move_rows_of_persons(self) -> None:
        """Move rows that a process of an earlier release, which knows no links and no renames, has stored."""
        with self._database.transaction() as connection:
            moved = renames.move_unmoved(connection, ROWS_MAX)
            if person_links.move_unmoved(connection, ACCOUNTS_MAX) or moved:
                self._prune_at = 0.0
