"""Connection strings: whether one can be read, what may be shown of it, and whether anybody answers there."""

from __future__ import annotations

import re
import time
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ...errors import SettingsError
from ..schema.preflight import first_line

_URL = ("postgresql://", "postgres://")


def check_dsn(dsn: str, name: str = "HERMES_PGVECTOR_DSN") -> None:
    """Raise SettingsError for a connection string that agents cannot use, which tells its `name` and nothing of it."""
    if parsed(dsn, name).get("options"):
        raise SettingsError(f"{name} holds `options=`, which connection poolers refuse: remove it")


def parsed(dsn: str, name: str = "HERMES_PGVECTOR_DSN") -> dict[str, Any]:
    """What libpq reads in a connection string.

    Raises SettingsError that tells where it came from, `name`, and nothing of it, when it cannot be read or is torn.
    """
    try:
        values = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeError):
        values = None
    # libpq reads up to a NUL, and would take what stands before it for all.
    if values is None or "\0" in dsn or _torn(dsn, str(values.get("port", ""))):
        raise SettingsError(
            f"{name} is not a connection string: give postgresql://user:password@host:5432/database, "
            "and percent-encode @ : / ? # % in the password (%40 is an @)"
        )
    return values


def describe(dsn: str) -> str:
    """A connection string without its password: `user@host:port/database`. Raises SettingsError like `parsed`."""
    values = parsed(dsn)
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


def _torn(dsn: str, port: str) -> bool:
    """Whether a URL may hold a password that ends too early, so that its rest passes for a port, host or database."""
    if not dsn.startswith(_URL):
        return False
    user, at, rest = dsn.partition("://")[2].partition("@")
    return (at != "" and "/" in user) or "@" in rest or re.fullmatch("[0-9,]*", port) is None
