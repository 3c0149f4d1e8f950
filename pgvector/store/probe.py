"""Probe of a database before it is chosen: whether it answers, its schema, and the rights of the role."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import ClientTooOld, PgvectorError, SchemaNotApplied, StandbyBehind, explained
from ..settings import Settings
from . import statistics
from .connection.database import Connection, Database
from .connection.driver_errors import wrap_errors
from .connection.dsn import check_dsn, describe
from .connection.standby import Standby
from .schema import migrations, verification
from .schema.preflight import check_server, connect, extension_refused, fetch, migrate_command


class StandbyFound(NamedTuple):
    """The standby of `recall_dsn`: how far it is behind, None if that is unknown, and why it is not read from, or "".

    `behind` is whether that is its lag alone.
    """

    where: str
    lag_s: float | None = None
    problem: str = ""
    behind: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a database as one role sees it.

    `stored` is None until the migrations are applied. `lacking` names those that are not, and `obstacle` says why this
    role cannot apply them, or use the tables; it is empty when it can.
    """

    where: str
    connect_s: float
    server_info: statistics.ServerInfo
    stored: verification.SchemaState | None
    lacking: tuple[str, ...]
    obstacle: str

    @property
    def ready(self) -> bool:
        """Whether agents can use the database now."""
        return self.stored is not None and not self.server_info.missing


def probe(dsn: str, timeout_s: float) -> Found:
    """Connect within about `timeout_s` seconds and read the state of the database; changes nothing.

    Raises SettingsError for a bad DSN or a database in which the memory cannot be made, PasswordWanted,
    DatabaseUnavailable, ClientTooOld, and SchemaNotApplied when the role may not even read the catalogs.
    """
    check_dsn(dsn, "the address")
    started = time.monotonic()
    with wrap_errors(), connect(dsn, timeout_s) as connection:
        connect_s = time.monotonic() - started
        info = statistics.server_info(connection)
        missing = ", ".join(info.missing[:4])
        denied = f"role {info.role!r} lacks {missing}; run: {migrate_command(info.role)}" if missing else ""
        return Found(describe(dsn), connect_s, info, *_schema(connection, denied))


def answer_seconds(dsn: str, timeout_s: float) -> float:
    """The seconds until a new connection has answered a statement. Raises DatabaseUnavailable."""
    started = time.monotonic()
    with wrap_errors(), connect(dsn, timeout_s) as connection:
        connection.execute("select 1")
    return time.monotonic() - started


def standby(settings: Settings, primary: Database, connection: Connection) -> StandbyFound | None:
    """The standby of the settings, if there is one. `connection` is one to the primary, in autocommit mode."""
    if not settings.recall_dsn.get_secret_value():
        return None
    asked = Standby(settings, primary)
    problem, behind = "", False
    try:
        primary.timeline.look(connection)
        asked.try_out()
    except PgvectorError as error:
        problem, behind = explained(error), isinstance(error, StandbyBehind)
    finally:
        asked.close()
    return StandbyFound(asked.label, asked.timeline.lag_s, problem, behind)


def has_password(dsn: str) -> bool:
    """Whether the DSN contains a password."""
    return bool(conninfo_to_dict(dsn).get("password"))


def with_password(dsn: str, password: str) -> str:
    """The DSN with this password, as key=value pairs."""
    return make_conninfo(dsn, password=password)


def _schema(connection: Connection, denied: str) -> tuple[verification.SchemaState | None, tuple[str, ...], str]:
    """The schema, the missing migrations, and why this role cannot apply them. `denied` are rights that it lacks."""
    try:
        return verification.verify(connection), (), denied
    except ClientTooOld:
        raise
    except SchemaNotApplied:
        if denied and fetch(connection, "SELECT to_regclass('hermes_pgvector_migrations')")[0]:
            return None, (), denied
    lacking: tuple[str, ...] = ("all",)
    try:
        lacking = tuple(migrations.pending(connection))
        migrations.check_names(connection)
        check_server(connection)
    except SchemaNotApplied as error:
        return None, lacking, str(error)
    (may_create,) = fetch(
        connection,
        """SELECT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
               OR (has_database_privilege(current_database(), 'CREATE')
                   AND EXISTS (SELECT FROM pg_available_extension_versions WHERE name = 'vector' AND trusted))""",
    )
    refused = None if may_create else extension_refused(connection)
    return None, lacking, str(refused) if refused else ""
