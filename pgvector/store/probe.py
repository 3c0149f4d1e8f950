"""Checks a database that an operator names: whether it answers, which schema it has, what the role may do."""

from __future__ import annotations

import time
from dataclasses import dataclass

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ..errors import DatabaseUnavailable, SchemaNotApplied
from . import statistics
from .connection.database import Connection
from .connection.driver_errors import wrap_errors
from .connection.dsn import check_dsn, connect, describe
from .schema import migrations, verification
from .schema.preflight import check_server, extension_refused, fetch, first_line


class PasswordWanted(DatabaseUnavailable):
    """The server asks for a password, or refuses the given one."""


@dataclass(frozen=True, slots=True)
class Found:
    """The state of a database as one role sees it.

    `stored` is None until the migrations are applied. `lacking` names those that are not, and `obstacle` says why this
    role cannot apply them; it is empty when it can. `missing` lists privileges on our tables that the role lacks.
    """

    where: str
    connect_s: float
    server_version: str
    pgvector_version: str
    role: str
    owner: bool
    stored: verification.SchemaState | None
    lacking: tuple[str, ...]
    obstacle: str
    missing: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether agents can use the database now."""
        return self.stored is not None and not self.missing


def probe(dsn: str, timeout_s: float) -> Found:
    """Connect within about `timeout_s` seconds and read the state of the database; changes nothing.

    Raises SettingsError for a bad DSN, PasswordWanted, DatabaseUnavailable, and SchemaNotApplied when the role may not
    even read the catalogs.
    """
    check_dsn(dsn, "the address")
    started = time.monotonic()
    with wrap_errors(), _connected(dsn, timeout_s) as connection:
        connect_s = time.monotonic() - started
        facts = statistics.facts(connection)
        stored, lacking, obstacle = _schema(connection, readable=not facts.missing)
        return Found(
            where=describe(dsn),
            connect_s=connect_s,
            server_version=facts.server_version,
            pgvector_version=facts.pgvector_version,
            role=facts.role,
            owner=facts.owner or facts.superuser,
            stored=stored,
            lacking=lacking,
            obstacle=obstacle,
            missing=facts.missing,
        )


def has_password(dsn: str) -> bool:
    """Whether the DSN contains a password."""
    return bool(conninfo_to_dict(dsn).get("password"))


def with_password(dsn: str, password: str) -> str:
    """The DSN with this password, as key=value pairs."""
    return make_conninfo(dsn, password=password)


def _connected(dsn: str, timeout_s: float) -> Connection:
    try:
        return connect(dsn, timeout_s)
    except psycopg.OperationalError as error:
        failed = error.pgconn
        wanted = failed is not None and (failed.needs_password or failed.used_password)
        kind = PasswordWanted if wanted else DatabaseUnavailable
        raise kind(f"Postgres cannot be reached: {first_line(error)}") from None


def _schema(connection: Connection, *, readable: bool) -> tuple[verification.SchemaState | None, tuple[str, ...], str]:
    """The schema, or else the missing migrations and why this role cannot apply them."""
    try:
        return verification.verify(connection), (), ""
    except SchemaNotApplied:
        if not readable:
            return None, (), "the role may not read the existing tables"
    try:
        lacking = tuple(migrations.pending(connection))
    except SchemaNotApplied as error:
        return None, ("all",), str(error)
    try:
        check_server(connection)
    except SchemaNotApplied as error:
        return None, lacking, str(error)
    refused = None if _may_create_extension(connection) else extension_refused(connection)
    return None, lacking, str(refused) if refused else ""


def _may_create_extension(connection: Connection) -> bool:
    may, *_ = fetch(
        connection,
        """SELECT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
               OR (has_database_privilege(current_database(), 'CREATE')
                   AND EXISTS (SELECT FROM pg_available_extension_versions WHERE name = 'vector' AND trusted))""",
    )
    return bool(may)
