"""How long a command that looks, or changes one row, may wait for the database."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..store.connection.database import Connection, Database

COUNT_S_MAX, LOCK_S_MAX = 30.0, 3


def limited(database: Database, statement_s: float) -> AbstractContextManager[Connection]:
    """A transaction in which a statement may take `statement_s` seconds, and wait for a lock up to LOCK_S_MAX.

    Raises DatabaseUnavailable when a lock is not had, and what `Database.connection` raises.
    """
    return database.transaction(statement_timeout_s=statement_s, lock_timeout=f"{LOCK_S_MAX}s")
