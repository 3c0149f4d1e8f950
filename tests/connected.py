"""A connection as the code of the store gets it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Connection, Database


@contextmanager
def connected(dsn: str) -> Iterator[Connection]:
    """A connection of a `Database`, in autocommit mode: it knows whether the tables are distributed."""
    database = Database(Settings(dsn=dsn), Path())  # type: ignore[arg-type]
    try:
        with database.connection(10) as connection:
            yield connection
    finally:
        database.close()
