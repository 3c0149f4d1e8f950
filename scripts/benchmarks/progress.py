"""What arrives in the tables, watched from outside."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

import psycopg

LOOK_EVERY_S = 0.1
_LOOK = """
select count(*), count(embedding),
  (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())
from conversations"""


class Sample(NamedTuple):
    """Seconds since the beginning, rows, rows with a vector, connections of others."""

    second: float
    rows: int
    embedded: int
    connections: int


@dataclass(frozen=True)
class Progress:
    """What was seen of the turns in a database; the last sample is the end."""

    samples: list[Sample]

    @property
    def rows(self) -> int:
        return self.samples[-1].rows

    @property
    def embedded(self) -> int:
        return self.samples[-1].embedded

    @property
    def took_s(self) -> float:
        """When the last change was seen."""
        last = self.samples[-1]
        return next(seen.second for seen in self.samples if seen[1:3] == last[1:3])

    @property
    def connections_max(self) -> int:
        return max(seen.connections for seen in self.samples)


def look(dsn: str, since: float = 0.0) -> Sample:
    """One look at a database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        return _look(connection, since)


def follow(dsn: str, expected: int, since: float, quiet_s: float, timeout_s: float = 300.0) -> Progress:
    """Look until `expected` rows stand there with their vectors, or nothing has changed for `quiet_s` seconds.

    Samples count from `since`, a moment of `time.monotonic`.
    """
    samples: list[Sample] = []
    changed = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            seen = _look(connection, since)
            now = time.monotonic()
            if not samples or seen[1:3] != samples[-1][1:3]:
                changed = now
            samples.append(seen)
            if seen.embedded >= expected or now - changed > quiet_s or now - since > timeout_s:
                return Progress(samples)
            time.sleep(LOOK_EVERY_S)


def _look(connection: psycopg.Connection, since: float) -> Sample:
    row = connection.execute(_LOOK).fetchone() or (0, 0, 0)
    return Sample(time.monotonic() - since, *map(int, row))
