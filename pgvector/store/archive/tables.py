"""Rows of a database of the package hermes-memory-pgvector up to 1.0, which is only read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg

from ...errors import BadArgument, Refused
from ..connection.driver_errors import wrap_errors
from ..schema.preflight import connect, first_line

ROWS_AT_ONCE = 200
_NOT_READABLE = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.InsufficientPrivilege)
_OURS: LiteralString = "select to_regclass('hermes_pgvector_migrations') is not null as ours"
_STATEMENTS: dict[str, LiteralString] = {
    "entry": """select id, agent_identity as theme, target, content, metadata, created_at::text, updated_at::text
                from memory_entries order by id""",
    "turn": """select id, agent_identity as theme, session_id, role, content, metadata, ts::text as at
               from conversations order by id""",
}


def rows(dsn: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """The id, the kind and the columns of each row, from one snapshot. Raises Refused, and DatabaseUnavailable."""
    with connect(dsn) as connection, wrap_errors():
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        found = connection.execute(_OURS).fetchone()
        if found and found["ours"]:
            raise BadArgument("the source is a database of this package; export it there, and import the archive")
        try:
            with connection.transaction():
                for kind, statement in _STATEMENTS.items():
                    with connection.cursor(name="source") as cursor:
                        cursor.itersize = ROWS_AT_ONCE
                        for row in cursor.execute(statement):
                            yield row.pop("id"), kind, row
        except _NOT_READABLE as error:
            raise Refused(
                f"the source cannot be read: {first_line(error)}; it has to be a database of the package "
                "hermes-memory-pgvector up to 1.0, and its role has to be allowed to read it"
            ) from None
