"""Settings that hold to the end of a transaction, or of a part of it, on the nodes of a cluster, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from .distributed import PASS_ON, is_distributed
from .driver_errors import wrap_errors

# Starting workers or compiling takes longer than a short read, and the workers of a server are few.
SERIAL: Mapping[str, LiteralString] = {"jit": "off", "max_parallel_workers_per_gather": "0"}


def set_local(statement_timeout_s: float, local: Mapping[str, str | int]) -> list[bytes]:
    """Statements for the settings of a transaction."""
    settings = {"statement_timeout": max(1, int(statement_timeout_s * 1000)), **local}
    return [f"set local {name.replace('__', '.')} = {_quoted(str(value))}".encode() for name, value in settings.items()]


def _quoted(value: str) -> str:
    """A value as a literal. The driver asks a library, which takes longer than all the rest of a statement."""
    return f"'{value}'" if value.isalnum() else sql.quote(value)


@contextmanager
def part(connection: psycopg.Connection[DictRow], statement_timeout_s: float, **local: str) -> Iterator[None]:
    """A part of a transaction that only reads, with its own time limit and settings, which end with the part.

    Raises what `Database.connection` raises; the transaction can go on after an error.
    """
    settings = set_local(statement_timeout_s, local)
    # psycopg's own savepoint takes two more round trips.
    opening = [b"; ".join((b"savepoint part", *settings))]
    if is_distributed(connection):
        # One by one, because Citus passes on the whole text of a message.
        opening = [b"savepoint part", PASS_ON, *settings]
    with wrap_errors():
        for statement in opening:
            connection.execute(statement)
        try:
            yield
        finally:
            if not connection.closed:
                connection.execute(b"rollback to part; release part")
