"""Turns that settings no longer keep: older than `retain_days`, or beyond the quota of their theme."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from ..model import now
from ..settings import Settings
from ..store import pruning, statistics, upkeep
from ..store.connection.database import Connection, Database
from ..store.pruning import Prunable, Pruning
from ..text.personal_keys import shown
from ..text.theme_names import covers

log = logging.getLogger("hermes.pgvector")

INTERVAL_S = 600.0
SAMPLE_ROWS = 100
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Quota:
    """What a theme has of its quota, in rows and in estimated bytes without indexes; 0 is no limit."""

    theme: str
    entries: int
    turns: int
    bytes: int
    rows_max: int
    bytes_max: int

    @property
    def excess(self) -> int:
        """How many turns are too many; more than there are, when the entries alone are."""
        rows = self.entries + self.turns
        by_rows = rows - self.rows_max if self.rows_max else 0
        by_bytes = math.ceil((self.bytes - self.bytes_max) * rows / self.bytes) if self.bytes_max and self.bytes else 0
        return max(0, by_rows, by_bytes)

    @property
    def full(self) -> bool:
        """Whether the oldest turns go for new ones: more than 99 % of the quota is used."""
        used = max(
            (self.entries + self.turns) / self.rows_max if self.rows_max else 0.0,
            self.bytes / self.bytes_max if self.bytes_max else 0.0,
        )
        return used > 0.99


def limit(limits: Mapping[str, int], theme: str) -> int:
    """The value of the first pattern that the theme matches; 0 without one."""
    return next((value for pattern, value in limits.items() if covers(pattern, theme)), 0)


def quotas(connection: Connection, settings: Settings) -> list[Quota]:
    """The themes that have a quota, in alphabetical order."""
    if not (settings.theme_rows_max or settings.theme_mb_max):
        return []
    limits = {
        theme: (limit(settings.theme_rows_max, theme), MB * limit(settings.theme_mb_max, theme))
        for theme in pruning.themes(connection)
    }
    limited = [theme for theme, values in limits.items() if any(values)]
    samples = statistics.sample(connection, limited, SAMPLE_ROWS, 1) if any(b for _, b in limits.values()) else {}
    found = []
    for theme, entries, turns in pruning.sizes(connection, limited):
        sample = samples.get(theme)
        size = int(entries * sample.entry_bytes + turns * sample.turn_bytes) if sample else 0
        found.append(Quota(theme, entries, turns, size, *limits[theme]))
    return found


class Retention:
    """Deletes what settings do not keep, in small steps, by one process of a fleet at a time. For one thread.

    A look at all themes begins every INTERVAL_S seconds; the lease of the process that looks is as long.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database, self._settings = database, settings
        self._lease = upkeep.Lease(upkeep.RETENTION_LEASE, INTERVAL_S)
        self._work: deque[tuple[Pruning, float]] = deque()
        self._look_at = 0.0
        self._warned: set[str] = set()

    @property
    def wanted(self) -> bool:
        """Whether there is something to do now."""
        settings = self._settings
        limited = settings.retain_days or settings.theme_rows_max or settings.theme_mb_max
        return bool(limited) and (bool(self._work) or time.monotonic() >= self._look_at)

    def step(self, rows: int) -> int:
        """Delete up to `rows` turns; returns how many. Raises PgvectorError; call it again later."""
        with self._database.transaction() as connection:
            if not self._work:
                self._look_at = time.monotonic() + INTERVAL_S
                if self._lease.claim(connection):
                    self._work.extend(self._found(connection))
                return 0
            if not self._lease.claim(connection):
                self._work.clear()
                return 0
            # After a failure the next look finds it again.
            turns, left = self._work.popleft()
            deleted = turns.batch(connection, int(min(rows, left)))
        if deleted and left > deleted:
            self._work.appendleft((turns, left - deleted))
        return deleted

    def stop(self) -> None:
        """Leave what is not done to another process; without such work nobody need look before the lease expires."""
        if self._work:
            self._work.clear()
            self._lease.release_soon(self._database)

    def _found(self, connection: Connection) -> Iterator[tuple[Pruning, float]]:
        """The turns to delete, and how many at most."""
        if self._settings.retain_days:
            for theme in pruning.themes(connection):
                if days := limit(self._settings.retain_days, theme):
                    old = Prunable(before=now() - timedelta(days=days))
                    yield Pruning("turns", theme, old), math.inf
        for quota in quotas(connection, self._settings):
            if quota.excess and quota.turns:
                self._warn(quota)
                yield Pruning("turns", quota.theme, Prunable()), min(quota.turns, quota.excess)

    def _warn(self, quota: Quota) -> None:
        if quota.theme not in self._warned:
            self._warned.add(quota.theme)
            log.warning(
                "theme %s is at its quota: the oldest turns are deleted for new ones; raise theme_rows_max or "
                "theme_mb_max, or see: hermes-pgvector status",
                shown(quota.theme),
            )
