"""Diagnosis of a database for operators: which statements of the store fail in it, and what endangers the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg

from .connection.database import Connection
from .connection.driver_errors import wrap_errors
from .queries import QUERIES, for_words
from .schema.preflight import first_line
from .schema.verification import TABLES

DEAD_ROWS_MIN = 10_000
_PARAMETER = re.compile(r"%\((\w+)\)[sbt]")


@dataclass(frozen=True, slots=True)
class Health:
    """What a server that accepts connections may do to the memory.

    `read_only` is where transactions are made read-only, as `pg_settings.source` says it, else empty. `client` is the
    address of this client, empty on a local socket. `standbys` is the number of servers that follow,
    `synchronous_standbys` whether commits wait for one. `broken_indexes` are not used by queries; `bloated` tables have
    more dead rows than live ones.
    """

    standby: bool
    read_only: str
    encrypted: bool
    client: str
    synchronous_commit: str
    standbys: int
    synchronous_standbys: bool
    clock: datetime
    broken_indexes: tuple[str, ...]
    bloated: tuple[str, ...]


def health(connection: Connection) -> Health:
    """The health of the server, as far as this role may see it."""
    values = {"tables": list(TABLES), "dead_rows": DEAD_ROWS_MIN}
    row = connection.execute(QUERIES["server_health"], values).fetchone() or {}
    found: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Health(**found)


def failing_statements(connection: Connection) -> dict[str, str]:
    """The names of the statements that this role cannot plan in this database, each with the server's reason.

    Each one is prepared and explained without values; none is executed. The connection is in autocommit mode. Raises
    DatabaseUnavailable when it is lost.
    """
    failing: dict[str, str] = {}
    for name in sorted(QUERIES):
        try:
            _explain(connection, name)
        except psycopg.Error as error:
            if connection.closed:
                with wrap_errors():
                    raise
            failing[name] = first_line(error)
    return failing


def _explain(connection: Connection, name: str) -> None:
    numbers: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", for_words(name, 1))
    nulls = f"({', '.join(['null'] * len(numbers))})" if numbers else ""
    with _prepared(connection, text.replace("%%", "%")):
        connection.execute(f"explain execute doctor{nulls}".encode())


@contextmanager
def _prepared(connection: Connection, text: str) -> Iterator[None]:
    connection.execute(f"prepare doctor as {text}".encode())
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("deallocate doctor")
