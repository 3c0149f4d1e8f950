"""Applies the migrations, as an administrator."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from ...errors import DatabaseUnavailable, SchemaNotApplied, SettingsError
from ...hosts.installation import pip_install
from . import rights
from .preflight import (
    LOCK_TIMEOUT_S,
    Connection,
    admin_connection,
    check_direct,
    check_server,
    extension_refused,
    fetch,
    first_line,
    set_timeouts,
    try_lock,
)
from .verification import LATEST

Progress: TypeAlias = Callable[[str], object]

# The key of the lock that one migration of a database holds at a time, an arbitrary constant.
ADVISORY_LOCK = 0x6865726D6573


@dataclass(frozen=True, slots=True)
class Migration:
    """One file of migrations/. The checksum is computed with unix line ends, because a checkout may convert them."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements, to send one by one: CONCURRENTLY runs alone, and Citus passes on the text as it is sent."""
        ends = [found.end() for found in _TOKEN.finditer(self.text) if found[0] == ";"]
        parts = (self.text[start:end] for start, end in zip([0, *ends], [*ends, None], strict=True))
        return [code for part in parts if (code := _COMMENTS.sub("", part).strip())]


def pending(connection: Connection) -> list[str]:
    """The names of the migrations that the database lacks, in order. Raises as `migration_files` does."""
    ledger = _ledger(connection)
    return [migration.name for migration in migration_files() if migration.version not in ledger]


def check_names(connection: Connection) -> None:
    """Raise SettingsError when another project has a table with the name of one that the missing migrations make.

    Raises as `migration_files` does, and SchemaNotApplied while a change of the model is unfinished.
    """
    made = {name: file.version for file in migration_files() for name in _CREATED_TABLE.findall(file.text)}
    schema, found = fetch(connection, _FOUND, {"names": list(made), "earlier": list(_EARLIER_TABLES)})
    # Read last: another migration may commit meanwhile.
    ledger = _ledger(connection)
    if taken := [name for name in found or () if made[name] not in ledger]:
        if ledger:
            _check_finished(connection)
        raise SettingsError(
            f"schema {schema!r} of database {connection.info.dbname!r} has tables of another project with names of the "
            f"memory: {', '.join(taken)}; use a database or a schema of its own (ALTER ROLE ... SET search_path), or "
            "rename them"
        )


def is_new(dsn: str) -> bool:
    """Whether a database has none of the tables yet. Raises as `migration_files` and `admin_connection` do."""
    with admin_connection(dsn) as connection:
        return not _ledger(connection)


def check_tables(dsn: str) -> None:
    """Raise SchemaNotApplied for tables that are not there after `migrate`, as where a dump was restored in part.

    Raises as `migration_files` and `admin_connection` do, too.
    """
    with admin_connection(dsn) as connection:
        names = [name for migration in migration_files() for name in _CREATED_TABLE.findall(migration.text)]
        (lost,) = fetch(connection, _LOST, [names])
        if lost:
            raise SchemaNotApplied(
                f"all migrations are applied, but database {connection.info.dbname!r} has no table {lost}; restore it "
                "from a dump, with its indexes and rights, then run migrate again"
            )


def migrate(
    dsn: str,
    *,
    runtime_role: str | None = None,
    narrow: bool = True,
    dimensions: int | None = None,
    progress: Progress = lambda _line: None,
    folder: Path | None = None,
    lock_wait_s: float = 300.0,
) -> list[str]:
    """Apply the migrations that a database lacks and return their names; safe to run several times at once.

    `dsn` is that of an administrator, to the server itself rather than to a transaction pooler. `dimensions` is the
    length of the vectors and matters on the first run only. `runtime_role` is granted what agents need, and with
    `narrow` loses what is more: see `rights`. `progress` gets one line for each step. `lock_wait_s` bounds the wait for
    a migration that runs elsewhere.

    Raises SettingsError (a wrong argument), DatabaseUnavailable (try again) or SchemaNotApplied (what the
    administrator must do first).
    """
    migrations = migration_files(folder)
    if dimensions is not None and not 1 <= dimensions <= 4000:
        raise SettingsError(f"dimensions is {dimensions}; it must be from 1 to 4000")

    def report(notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == "00000":  # what IF NOT EXISTS skips has a code of its own
            progress(notice.message_primary or "")

    with admin_connection(dsn) as connection:
        check_direct(connection, dsn)
        check_names(connection)
        check_server(connection)
        if runtime_role:
            rights.check_role(connection, runtime_role)
        connection.add_notice_handler(report)
        set_timeouts(connection)
        if dimensions is not None:
            fetch(connection, "SELECT set_config('hermes_pgvector.dimensions', %s, false)", [str(dimensions)])
        _lock(connection, lock_wait_s, progress)
        applied = _apply_missing(connection, migrations, progress)
        if runtime_role is not None:
            rights.ensure(connection, runtime_role, narrow=narrow)
            progress(f"role {runtime_role} may read and write the memory")
    return applied


def migration_files(folder: Path | None = None) -> list[Migration]:
    """Read the migrations in order, by default those of this package.

    Raises SchemaNotApplied when they are not beside the package, as in a bare copy of its folder.
    """
    package = Path(__file__).resolve().parents[2]
    for place in [folder] if folder else [package / "migrations", package.parent / "migrations", *_installed()]:
        paths = sorted(place.glob("[0-9][0-9][0-9]_*.sql"))
        if paths and (folder or int(paths[-1].name[:3]) == LATEST):
            return [Migration(int(path.name[:3]), path.stem, path.read_text(encoding="utf-8")) for path in paths]
    raise SchemaNotApplied(
        f"the migration files are not beside {package}; the folder migrations/ of the repository has them, "
        f"or get them with: {pip_install()}"
    )


def _installed() -> list[Path]:
    """The folder of the migrations in an installed package, for a bare copy of this folder beside it."""
    try:
        found = importlib.util.find_spec("hermes_memory_pgvector.migrations")
    except ModuleNotFoundError:
        return []
    return [Path(place) for place in found.submodule_search_locations or ()] if found else []


def _apply_missing(connection: Connection, migrations: Sequence[Migration], progress: Progress) -> list[str]:
    """Apply the files that the ledger lacks; returns their names. A file that psql applied gets its checksum now.

    Raises SchemaNotApplied for a file that differs from the applied one.
    """
    applied = []
    # On a Citus cluster, a file may change tables and functions in one transaction.
    connection.execute("SET citus.multi_shard_modify_mode = 'sequential'")
    for migration in migrations:
        known = _ledger(connection).get(migration.version)
        if known is None:
            _check_finished(connection)
            progress(f"applying {migration.name}")
            _apply(connection, migration)
            applied.append(migration.name)
        elif known[0] != migration.name or known[1] not in (None, migration.checksum):
            raise SchemaNotApplied(
                f"the file {migration.name}.sql is not the one that was applied as {known[0]}: its checksum is "
                f"{migration.checksum[:12]}, the ledger has {(known[1] or '')[:12]}; put the released file back"
            )
        connection.execute(
            "UPDATE hermes_pgvector_migrations SET checksum = %s WHERE version = %s AND checksum IS NULL",
            [migration.checksum, migration.version],
        )
    return applied


def _check_finished(connection: Connection) -> None:
    """Raise SchemaNotApplied while the second column of vectors is there, which no migration knows."""
    if fetch(connection, "SELECT to_regclass('hermes_pgvector_settings')")[0] is None:
        return
    if fetch(connection, "SELECT 1 FROM hermes_pgvector_settings WHERE name = 'reembed'"):
        raise SchemaNotApplied(
            "a change of the embedding model is unfinished; finish it with the command that began it, or run: "
            "hermes-pgvector reembed --abandon; then run migrate again"
        )


def _apply(connection: Connection, migration: Migration) -> None:
    """Run one file as it is; it contains its own BEGIN and COMMIT."""
    try:
        for statement in migration.statements:
            if index := _CONCURRENT_INDEX.match(statement):
                _drop_invalid(connection, index[1])
            connection.execute(statement.encode())
    except psycopg.errors.LockNotAvailable:
        raise DatabaseUnavailable(
            f"{migration.name}: a table was in use for {LOCK_TIMEOUT_S} s; nothing is changed, stop the agents "
            "and run migrate again"
        ) from None
    except psycopg.OperationalError as error:
        raise DatabaseUnavailable(f"{migration.name}: {first_line(error)}; run migrate again") from error
    except psycopg.Error as error:
        connection.rollback()
        if isinstance(error, psycopg.errors.InsufficientPrivilege) and (refused := extension_refused(connection)):
            raise refused from error
        hint = f" ({error.diag.message_hint})" if error.diag.message_hint else ""
        raise SchemaNotApplied(f"{migration.name} failed and changed nothing: {first_line(error)}{hint}") from error
    if migration.version not in _ledger(connection):
        raise SchemaNotApplied(
            f"{migration.name} ran but left no row in hermes_pgvector_migrations; is the file whole?"
        )


_CREATED_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
# Of the releases before 2.0, which 002_memory takes over.
_EARLIER_TABLES = ("memory_entries", "conversations", "memory_agents", "memory_agent_edges")
_FOUND: LiteralString = """
    SELECT current_schema(), array_agg(relname::text ORDER BY relname) FROM pg_class
    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY (%(names)s)
      AND NOT (relname = ANY (%(earlier)s)
               AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND NOT attisdropped
                             AND attname IN ('agent_identity', 'parent_identity')))"""
_LOST: LiteralString = """
    SELECT string_agg(name, ', ' ORDER BY name) FROM unnest(%s::text[]) AS name WHERE to_regclass(name) IS NULL"""
# What may contain a semicolon, or is one.
_TOKEN = re.compile(r"\$(\w*)\$.*?\$\1\$|'[^']*'|--[^\n]*|;", re.DOTALL)
_COMMENTS = re.compile(r"\A(\s*--[^\n]*(\n|\Z))+")
_CONCURRENT_INDEX = re.compile(r"CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(?:IF\s+NOT\s+EXISTS\s+)?(\w+)")


def _drop_invalid(connection: Connection, index: str) -> None:
    """Drop the invalid index that an interrupted concurrent build has left."""
    left_over = fetch(
        connection, "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(%s) AND NOT indisvalid", [index]
    )
    if left_over:
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(sql.Identifier(index)))


def _ledger(connection: Connection) -> dict[int, tuple[str, str | None]]:
    """The applied migrations: version -> (name, checksum). Empty when the database has no ledger."""
    if fetch(connection, "SELECT to_regclass('hermes_pgvector_migrations')")[0] is None:
        return {}
    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute("SELECT version, name, checksum FROM hermes_pgvector_migrations")
        return {version: (name, checksum) for version, name, checksum in cursor}


def _lock(connection: Connection, wait_s: float, progress: Progress) -> None:
    """Take the lock of the migrations. Raises DatabaseUnavailable after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    if try_lock(connection, ADVISORY_LOCK):
        return
    progress("waiting for another migration of this database")
    while not try_lock(connection, ADVISORY_LOCK):
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(
                f"another migration of this database still runs after {wait_s:g} s; try again later"
            )
        time.sleep(0.2)
