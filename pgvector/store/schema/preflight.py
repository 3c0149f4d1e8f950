"""Checks before a migration: a direct connection, a new enough server, the extension, the role."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row, tuple_row

from ...errors import DatabaseUnavailable, SchemaNotApplied, SettingsError

Connection: TypeAlias = psycopg.Connection[Any]

POSTGRES_MIN = 15
PGVECTOR_MIN = "0.8"
# Older ones can fail in VACUUM and in index builds.
PGVECTOR_SOUND = "0.8.4"
# Of databases, and of all connections, whatever the DSN, the role or the environment says.
ENCODING = "UTF8"
CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = 60
IDLE_S_MAX = 60
POOLER_TRIES = 5
ENCODING_FOUND = "has the encoding {}, in which texts of other languages, and emoji, cannot be stored"
ENCODING_REMEDY = (
    "make one that holds them, and use it instead: "
    f"CREATE DATABASE hermes_memory TEMPLATE template0 ENCODING '{ENCODING}' LOCALE 'C.UTF-8'"
)
UNREACHABLE, REFUSED = "Postgres cannot be reached", "Postgres refuses the connection"
# Words of the server, and of the driver about what the server answered. Without them it is silent.
_ANSWERED = re.compile("FATAL:|password|authentication|certificate|SSL error|does not support SSL")
# Shown instead of a DSN, which may contain a password.
ADMINISTRATOR = "postgresql://ADMIN@HOST/DATABASE"


def migrate_command(role: str = "ROLE") -> str:
    """The command for an administrator. It has a DSN because the agents' role may not migrate."""
    return f"hermes-pgvector migrate --dsn {ADMINISTRATOR} --runtime-role {role}"


class PasswordWanted(DatabaseUnavailable):
    """The server asks for a password, or refuses the given one."""


def connect(dsn: str, timeout_s: float = CONNECT_TIMEOUT_S) -> psycopg.Connection[DictRow]:
    """An autocommit connection outside of the pool, with rows by name. Raises PasswordWanted or DatabaseUnavailable."""
    try:
        return psycopg.connect(
            dsn, autocommit=True, prepare_threshold=None, connect_timeout=max(2, int(timeout_s)), row_factory=dict_row,
            client_encoding=ENCODING,
        )  # fmt: skip
    except psycopg.OperationalError as error:
        failed = error.pgconn
        wanted = failed is not None and (failed.needs_password or failed.used_password)
        kind = PasswordWanted if wanted else DatabaseUnavailable
        failure = first_line(error)
        raise kind(f"{REFUSED if refused(failure) else UNREACHABLE}: {failure}") from None


def refused(failure: str) -> bool:
    """Whether a server refused a connection, rather than being silent, by the driver's words for the failure."""
    return bool(_ANSWERED.search(failure))


@contextmanager
def admin_connection(dsn: str) -> Iterator[Connection]:
    """As `connect`, for an administrator: in the block the driver's errors become ours; none shows the DSN.

    Raises SettingsError, DatabaseUnavailable or SchemaNotApplied.
    """
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise SettingsError("the DSN is neither a postgresql:// URL nor key=value pairs (not shown here)") from None
    try:
        with connect(dsn) as connection:
            yield connection
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise DatabaseUnavailable(f"Postgres gave up: {first_line(error)}; run the command again") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SchemaNotApplied(
            f"Postgres refused: {first_line(error)}; run it as an administrator: --dsn {ADMINISTRATOR}"
        ) from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailable(
            f"Postgres refused: {first_line(error)}, as all of a standby; run it on the primary: --dsn {ADMINISTRATOR}"
        ) from error
    except psycopg.Error as error:
        raise SchemaNotApplied(f"Postgres refused: {first_line(error)}") from error


def try_lock(connection: Connection, key: int) -> bool:
    """Take an advisory lock until the connection is closed; False when another session has it.

    It does not wait, because CREATE INDEX CONCURRENTLY waits for every session that blocks in a statement.
    """
    return bool(fetch(connection, "SELECT pg_try_advisory_lock(%s)", [key])[0])


def set_timeouts(connection: Connection) -> None:
    """Let statements run without a limit, until the connection closes, but not hold up agents by their locks.

    They wait for locks up to LOCK_TIMEOUT_S, and the server rolls back when the next one does not come in IDLE_S_MAX.
    """
    connection.execute(
        f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'; SET statement_timeout = 0;"
        f" SET idle_in_transaction_session_timeout = '{IDLE_S_MAX}s'".encode()
    )


def check_direct(connection: Connection, dsn: str) -> None:
    """Raise SettingsError when the connection goes through a transaction pooler.

    A migration, `reembed` and `tune` need the settings and the advisory lock of one session: a pooler would lose them
    between transactions, or keep the lock and so block the next run.
    """
    if connection.info.backend_pid in fetch(connection, "SELECT pg_backend_pid()"):
        return
    with connect(dsn) as another:
        for _ in range(POOLER_TRIES):
            # Two sessions have two server processes, unless a pooler shares one.
            if fetch(connection, "SELECT pg_backend_pid()") == fetch(another, "SELECT pg_backend_pid()"):
                raise SettingsError(
                    "this DSN leads to a transaction pooler, through which this command cannot run: give it the --dsn "
                    "of the server itself; the agents may use the pooler"
                )


def check_server(connection: Connection) -> None:
    """Raise SchemaNotApplied with the remedy when the server is too old, or lacks the extension or a privilege.

    Raises SettingsError when a database without our schema has another encoding than UTF8: another one has to be used.
    """
    _check_place(connection)
    number, schema, may_create, installed, available, home, visible, encoding, new = fetch(
        connection,
        """SELECT current_setting('server_version_num')::int, current_schema(),
                  coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),
                  (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
                  (SELECT default_version FROM pg_available_extensions WHERE name = 'vector'),
                  (SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'),
                  to_regtype('halfvec') IS NOT NULL,
                  current_setting('server_encoding'), to_regclass('hermes_pgvector_migrations') IS NULL""",
    )
    database, user = connection.info.dbname, connection.info.user
    if number // 10000 < POSTGRES_MIN:
        raise SchemaNotApplied(f"the server is Postgres {number // 10000}; {POSTGRES_MIN} or newer is needed")
    if new and encoding != ENCODING:
        raise SettingsError(f"database {database!r} {ENCODING_FOUND.format(encoding)}; {ENCODING_REMEDY}")
    if not may_create:
        raise SchemaNotApplied(
            f"role {user!r} may not create tables in schema {schema or '(none on the search_path)'!r} of database "
            f"{database!r}; run as an administrator: hermes-pgvector migrate --dsn {ADMINISTRATOR}; the schema's owner "
            f"makes one in psql: GRANT CREATE ON SCHEMA {schema or 'public'} TO ADMIN; never the agents' role"
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
            f"pgvector is installed in schema {home!r}, which is not on the search_path; as its owner run: "
            f"ALTER DATABASE {database} SET search_path = {schema}, {home}"
        )


def _check_place(connection: Connection) -> None:
    """Raise SchemaNotApplied when what a migration makes would be in another schema than the tables."""
    own = fetch(
        connection,
        """SELECT quote_ident(nspname), quote_ident(current_schema()), quote_ident(current_user),
                  quote_ident(current_database()), current_setting('search_path')
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.oid = to_regclass('hermes_pgvector_migrations') AND nspname <> current_schema()""",
    )
    if own:
        home, first, user, database, path = own
        raise SchemaNotApplied(
            f"the memory is in schema {home}, but what a migration makes for role {user} would be in {first}, which is "
            f"before it on the search_path; in psql run: ALTER ROLE {user} IN DATABASE {database} SET search_path = "
            f"{home}, {path}; then run migrate again"
        )


def older(version: str, than: str) -> bool:
    """Whether a version such as `0.8.1` is older than another; an empty version is older than all."""
    given, wanted = ([int(part) for part in re.findall(r"\d+", text)] for text in (version, than))
    return given < wanted


def extension_refused(connection: Connection) -> SchemaNotApplied | None:
    """The error to raise when the database lacks the extension and the role may not create it; None when it has it."""
    if fetch(connection, "SELECT 1 FROM pg_extension WHERE extname = 'vector'"):
        return None
    return SchemaNotApplied(
        f"role {connection.info.user!r} may not create the extension; as a superuser run in database "
        f"{connection.info.dbname!r}: CREATE EXTENSION vector; then run migrate again"
    )


def fetch(
    connection: Connection, statement: LiteralString, parameters: Sequence[Any] | Mapping[str, Any] = ()
) -> tuple[Any, ...]:
    """The first row as a tuple, empty when there is none, for any row factory of the connection."""
    with connection.cursor(row_factory=tuple_row) as cursor:
        return cursor.execute(statement, parameters or None).fetchone() or ()


def first_line(error: psycopg.Error) -> str:
    """The first line of an error's message; the lines below it can contain data."""
    return (error.diag.message_primary or str(error)).partition("\n")[0].removeprefix("connection failed: ")
