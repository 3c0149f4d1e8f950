"""Counts of rows, embeddings and connections in a database, over time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

POLL_EVERY_S = 0.1
_COUNTS = """
select count(*), count(embedding),
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


def sample(dsn: str, since: float = 0.0) -> Sample:
    """One sample of a database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return _sample(connection, since)


def follow(dsn: str, expected: int, since: float, quiet_s: float, timeout_s: float = 300.0) -> Progress:
    """Sample until `expected` rows have embeddings, nothing has changed for `quiet_s`, or `timeout_s` is over.

    `since` is the start as of `time.monotonic`.
    """
    samples: list[Sample] = []
    changed = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            seen = _sample(connection, since)
            now = time.monotonic()
            if not samples or seen[1:3] != samples[-1][1:3]:
                changed = now
            samples.append(seen)
            if seen.embedded >= expected or now - changed > quiet_s or now - since > timeout_s:
                return Progress(samples)
            time.sleep(POLL_EVERY_S)


def _sample(connection: psycopg.Connection, since: float) -> Sample:
    row = connection.execute(_COUNTS).fetchone() or (0, 0, 0)
    return Sample(time.monotonic() - since, *map(int, row))
