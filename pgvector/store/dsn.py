"""Connection strings: whether one can be read, what may be shown of it, and whether anybody answers there."""

from __future__ import annotations

import time
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ..errors import SettingsError
from .preflight import first_line


def check_dsn(dsn: str) -> None:
    """Raise SettingsError for a connection string that libpq cannot read, without repeating it."""
    try:
        values = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise SettingsError(
            "HERMES_PGVECTOR_DSN is not a connection string: give postgresql://user:password@host:5432/database"
        ) from None
    if values.get("options"):
        raise SettingsError("HERMES_PGVECTOR_DSN holds `options=`, which connection poolers refuse: remove it")


def describe(dsn: str) -> str:
    """A connection string without its password: `user@host:port/database`."""
    values: dict[str, Any] = conninfo_to_dict(dsn)
    host = values.get("host") or values.get("hostaddr") or "local socket"
    return f"{values.get('user') or ''}@{host}:{values.get('port') or 5432}/{values.get('dbname') or ''}"


def reachable(dsn: str, timeout_s: float) -> tuple[bool, str, float]:
    """Try one connection: whether it worked, why not, and the seconds it took."""
    started = time.monotonic()
    try:
        with psycopg.connect(dsn, connect_timeout=max(2, int(timeout_s))) as connection:
            connection.execute("select 1")
    except psycopg.Error as error:
        return False, first_line(error), time.monotonic() - started
    return True, "", time.monotonic() - started
