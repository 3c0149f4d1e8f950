"""Counts of rows, embeddings and connections in a database, over time."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

POLL_EVERY_S = 0.1
EMBEDDED, COMPLETE = "embedding is not null", "embedding is not null and search is not null"
_COUNTS = """
select count(*), count(*) filter (where {}),
  (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())
from conversations"""


class Sample(NamedTuple):
    """Seconds since the start, rows, rows with an embedding, connections of other clients."""

    second: float
    rows: int
    embedded: int
    connections: int


@dataclass(frozen=True)
class Progress:
    """Samples of one database in order of time."""

    samples: list[Sample]

    @property
    def rows(self) -> int:
        return self.samples[-1].rows

    @property
    def embedded(self) -> int:
        return self.samples[-1].embedded

    @property
    def took_s(self) -> float:
        """Seconds until the last change of the counts."""
        last = self.samples[-1]
        return next(seen.second for seen in self.samples if seen[1:3] == last[1:3])

    @property
    def connections_max(self) -> int:
        return max(seen.connections for seen in self.samples)

    def rows_s(self, count: int) -> float | None:
        """Seconds until there were `count` rows; None if they never were."""
        return next((seen.second for seen in self.samples if seen.rows >= count), None)

    def embedded_s(self, count: int) -> float | None:
        """Seconds until `count` rows had an embedding; None if they never had."""
        return next((seen.second for seen in self.samples if seen.embedded >= count), None)

    def embedded_at(self, second: float) -> int:
        """The rows that had an embedding after so many seconds."""
        return max((seen.embedded for seen in self.samples if seen.second <= second), default=0)


def sample(dsn: str) -> Sample:
    """One sample of a database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return _sample(connection, 0.0, EMBEDDED)


def follow(
    dsn: str, expected: int, since: float, limit_s: float, quiet_s: float = math.inf, embedded: str = EMBEDDED
) -> Progress:
    """Sample until `expected` rows are embedded, nothing has changed for `quiet_s`, or `limit_s` seconds are over.

    `since` is the start as of `time.monotonic`; `embedded` is the SQL condition of a row that counts as embedded.
    """
    samples: list[Sample] = []
    changed = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            seen = _sample(connection, since, embedded)
            now = time.monotonic()
            if not samples or seen[1:3] != samples[-1][1:3]:
                changed = now
            samples.append(seen)
            if seen.embedded >= expected or now - changed > quiet_s or now - since > limit_s:
                return Progress(samples)
            time.sleep(POLL_EVERY_S)


def _sample(connection: psycopg.Connection, since: float, embedded: str) -> Sample:
    row = connection.execute(_COUNTS.format(embedded).encode()).fetchone() or (0, 0, 0)
    return Sample(time.monotonic() - since, *map(int, row))
