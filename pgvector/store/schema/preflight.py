"""What must hold before the schema can be made: a connection, a new enough server, an extension, a role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from ...errors import DatabaseUnavailable, SchemaNotApplied, SettingsError

Connection: TypeAlias = psycopg.Connection[Any]

POSTGRES_MIN = 15
PGVECTOR_MIN = "0.8"
# Older ones can fail in VACUUM and in index builds.
PGVECTOR_SOUND = "0.8.4"
CONNECT_TIMEOUT_S = 10
POOLER_TRIES = 5
# What to put in the place of a DSN that may hold a password.
ADMINISTRATOR = "postgresql://ADMIN@HOST/DATABASE"


def migrate_command(role: str = "ROLE") -> str:
    """What an administrator runs, whole: without the DSN it would run as the agents' role, which may not do it."""
    return f"hermes-pgvector migrate --dsn {ADMINISTRATOR} --runtime-role {role}"


@contextmanager
def admin_connection(dsn: str) -> Iterator[Connection]:
    """An autocommit connection; errors of the driver become ours, and none shows the DSN, which may hold a password."""
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise SettingsError("the DSN is neither a postgresql:// URL nor key=value pairs (not shown here)") from None
    try:
        connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_TIMEOUT_S)
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"Postgres cannot be reached: {first_line(error)}") from None
    try:
        with connection:
            yield connection
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable(f"Postgres gave up: {first_line(error)}; run migrate again") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaNotApplied(
            f"Postgres refused: {first_line(error)}; run it as an administrator: --dsn {ADMINISTRATOR}"
        ) from error
    except psycopg.Error as error:
        raise SchemaNotApplied(f"Postgres refused: {first_line(error)}") from error


def check_direct(connection: Connection, dsn: str) -> None:
    """Raise SettingsError when a pooler in between shares server processes out by the transaction.

    Settings and the lock of the session would be lost to a migration, or stay with the process and block the next one.
    """
    if connection.info.backend_pid in fetch(connection, "SELECT pg_backend_pid()"):
        return
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_TIMEOUT_S) as another:
        for _ in range(POOLER_TRIES):
            # Two sessions have two processes, unless they take turns.
            if fetch(connection, "SELECT pg_backend_pid()") == fetch(another, "SELECT pg_backend_pid()"):
                raise SettingsError(
                    "there is a transaction pooler between here and the server, which migrations do not pass: run "
                    "migrate with --dsn of the server itself; the agents may go through the pooler"
                )


def check_server(connection: Connection) -> None:
    """Raise SchemaNotApplied with the remedy when the server cannot take the schema."""
    number, schema, may_create, installed, available, home, visible = fetch(
        connection,
        """SELECT current_setting('server_version_num')::int, current_schema(),
                  coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
                  (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
                  (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),
                  (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'),
                  to_regtype('halfvec') IS NOT NULL""",
    )
    database, user = connection.info.dbname, connection.info.user
    if number // 10000 < POSTGRES_MIN:
        raise SchemaNotApplied(f"the server is Postgres {number // 10000}; {POSTGRES_MIN} or newer is needed")
    if not may_create:
        raise SchemaNotApplied(
            f"role {user!r} may not create tables in schema {schema or '(none on the search_path)'!r} of database "
            f"{database!r}; give hermes-pgvector migrate the --dsn of an administrator, whom the schema's owner makes "
            f"with: GRANT CREATE ON SCHEMA {schema or 'public'} TO ADMIN (never to the agents' role)"
        )
    if installed is None and available is None:
        raise SchemaNotApplied(
            f"pgvector is not installed on the server; install its package (postgresql-{number // 10000}-pgvector on "
            "Debian and Ubuntu), then run migrate again"
        )
    version = installed or available
    if older(version, PGVECTOR_MIN):
        raise SchemaNotApplied(
            f"pgvector {version} is too old, {PGVECTOR_MIN} is needed; install a newer package, then as a superuser "
            f"run in database {database!r}: ALTER EXTENSION vector UPDATE"
        )
    if home is not None and not visible:
        raise SchemaNotApplied(
            f"pgvector lives in schema {home!r}, which is not on the search_path; as its owner run: "
            f"ALTER DATABASE {database} SET search_path = {schema}, {home}"
        )


def older(version: str, than: str) -> bool:
    """Whether a version such as `0.8.1` comes before another; an empty one, which is none, does."""
    given, wanted = ([int(part) for part in re.findall(r"\d+", text)] for text in (version, than))
    return given < wanted


def extension_refused(connection: Connection) -> SchemaNotApplied | None:
    """The remedy when a statement was refused because the extension is not there and the role may not create it."""
    if fetch(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        return None
    return SchemaNotApplied(
        f"role {connection.info.user!r} may not create the extension; as a superuser run in database "
        f"{connection.info.dbname!r}: CREATE EXTENSION vector; then run migrate again"
    )


def check_role(connection: Connection, role: str) -> None:
    """Raise SettingsError when the role does not exist."""
    if not fetch(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", [role]):
        raise SettingsError(f"runtime role {role!r} does not exist on the server; make it first: CREATE ROLE ... LOGIN")


def fetch(connection: Connection, statement: LiteralString, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
    """One row, empty when there is none, whatever the row factory of the connection."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement, parameters or None).fetchone() or ()


def first_line(error: psycopg.Error) -> str:
    """What went wrong in one line, without the data that the server adds below it."""
    return (error.diag.message_primary or str(error)).partition("\n")[0].removeprefix("connection failed: ")
