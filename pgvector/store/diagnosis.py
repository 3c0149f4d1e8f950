"""Diagnosis of a database for operators: which statements of the store fail in it, and what endangers the memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import psycopg

from ..errors import DatabaseUnavailable
from .connection.database import Connection
from .connection.distributed import forms, is_distributed
from .connection.driver_errors import wrap_errors
from .queries import QUERIES, for_words
from .schema.preflight import first_line
from .schema.verification import TABLES

# With that of the owner, in which agents have no rights, and that of a cluster.
_TABLES = (*TABLES, "memory_theme_grants", "memory_entry_homes")
DEAD_ROWS_MIN = 10_000
# Statements of `erase`, which deletes from the history, and of `grants`: those of the tables' owner.
_OF_OWNER = {"erase_history_rows", "erase_past", "list_grants", "add_grant", "remove_grant"}
COUNTED_BYTES_MIN = 1 << 20
LOCK_S_MAX = 1.0
_UNEXPLAINED = re.compile("could not create distributed plan|no value found for parameter")
_PARAMETER = re.compile(r"%\((\w+)\)[sbt]")


@dataclass(frozen=True, slots=True)
class Health:
    """What a server that accepts connections may do to the memory.

    `read_only` is where transactions are made read-only, as `pg_settings.source` says it, else empty. `client` is the
    address of this client, empty on a local socket. `standbys` is the number of servers that follow,
    `synchronous_standbys` whether commits wait for one. `broken_indexes` are not used by queries; `bloated` tables have
    more dead rows than live ones, and the planner has no statistics of `uncounted` ones. `indexes` and `triggers` are
    those of our tables, a trigger with its table and `D` when it is disabled.
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
    uncounted: tuple[str, ...] = ()
    indexes: tuple[str, ...] = ()
    triggers: tuple[tuple[str, str, str], ...] = ()


class Holder(NamedTuple):
    """A process of the server that has locked a table of ours, by its id and the name of its program."""

    pid: str
    program: str
    table: str


class Locked(DatabaseUnavailable):
    """Tables of ours are locked, so that agents wait; `holders` is who has locked them."""

    def __init__(self, holders: list[Holder]) -> None:
        super().__init__("tables of the memory are locked by another transaction")
        self.holders = holders


@contextmanager
def waiting_briefly(connection: Connection) -> Iterator[None]:
    """A transaction that only reads. Raises Locked when a table was locked for LOCK_S_MAX seconds.

    The connection is in autocommit mode.
    """
    with _holders_named(connection), connection.transaction():
        connection.execute(f"set local lock_timeout = '{LOCK_S_MAX:g}s'".encode())
        yield


@contextmanager
def _holders_named(connection: Connection) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.LockNotAvailable:
        holders = connection.execute(QUERIES["lock_holders"], {"tables": list(_TABLES)})
        raise Locked([Holder(**row) for row in holders]) from None


def health(connection: Connection) -> Health:
    """The health of the server, as far as this role may see it."""
    values = {"tables": list(_TABLES), "dead_rows": DEAD_ROWS_MIN, "counted_bytes": COUNTED_BYTES_MIN}
    row = connection.execute(QUERIES["server_health"], values).fetchone() or {}
    return Health(**{name: _frozen(value) for name, value in row.items()})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def failing_statements(connection: Connection) -> dict[str, str]:
    """The names of the statements that this role cannot plan in this database, each with the server's reason.

    Each one is prepared and explained without values; none is executed. The connection is in autocommit mode. Raises
    DatabaseUnavailable when it is lost, and Locked when a table was locked for LOCK_S_MAX seconds.
    """
    failing: dict[str, str] = {}
    for name in sorted(forms(connection) - _OF_OWNER):
        try:
            with _holders_named(connection):
                _explain(connection, name)
        except psycopg.Error as error:
            if connection.closed:
                with wrap_errors():
                    raise
            # Citus cannot explain all that it runs.
            if not (is_distributed(connection) and _UNEXPLAINED.search(first_line(error))):
                failing[name] = first_line(error)
    return failing


def disk_is_full(connection: Connection) -> bool:
    """Whether the server has no room for a megabyte, which is written to a temporary table and rolled back.

    False, too, when this role may not make one. The connection is in autocommit mode.
    """
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("create temporary table doctor_disk as select generate_series(1, 30000)")
    except psycopg.errors.DiskFull:
        return True
    except psycopg.errors.InsufficientPrivilege:
        pass
    return False


def _explain(connection: Connection, name: str) -> None:
    """Prepare and explain a statement, in one transaction, because a pooler may use several connections otherwise."""
    numbers: dict[str, int] = {}
    text = _PARAMETER.sub(lambda found: f"${numbers.setdefault(found[1], len(numbers) + 1)}", for_words(name, 1))
    # On a cluster, a statement about one theme names it.
    given = ["'theme'" if name == "theme" and is_distributed(connection) else "null" for name in numbers]
    nulls = f"({', '.join(given)})" if numbers else ""
    opening = f"begin; set local lock_timeout = '{LOCK_S_MAX:g}s'; prepare doctor as {text.replace('%%', '%')}"
    explained = f"savepoint prepared; explain execute doctor{nulls}; deallocate doctor; rollback"
    try:
        connection.execute(f"{opening}; {explained}".encode())
    except psycopg.Error:
        if not connection.closed:
            with suppress(psycopg.Error):
                connection.execute("rollback to prepared; deallocate doctor")
            connection.execute("rollback")
        raise
