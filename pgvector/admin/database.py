"""The database of a home for a command: a started server, a connection, a runtime, the administrator's address."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from pydantic import SecretStr

from ..errors import BadArgument, DatabaseUnavailable, SettingsError
from ..hosts.environment import profile_name, working_folder
from ..model import WORDS_ONLY
from ..runtime import Runtime, acquire, release
from ..session.identity import Identity
from ..session.project import project_of
from ..session.themes import allowed, stored_name, templated_theme
from ..settings import Settings, load
from ..store.connection.database import Connection, Database
from ..store.connection.dsn import parsed
from ..store.embedded import identity
from ..store.person_links import person_of
from ..store.schema import migrations
from ..store.schema.preflight import admin_connection
from ..text.sanitize import safe_line
from .console import Console
from .embedder import vector_length
from .limits import limited

ADMIN_DSN = "HERMES_PGVECTOR_ADMIN_DSN"
READY_S_MAX = 60.0
REASON_CHARS_MAX = 300


def start_server(database: Database, *, create: bool = False) -> None:
    """Start the server of an embedded database. Without `create` its data must exist: the home may be mistyped."""
    if database.server is not None:
        if not create:
            if lost := identity.absent(database.home / "pgvector", database.server.paths.data):
                raise SettingsError(lost)
            database.server.check_made()
        database.server.ensure_running()


@contextmanager
def connection(home: Path, statement_s: float | None = None) -> Iterator[Connection]:
    """A connection to the database of a home with a verified schema; starts an embedded server that is stopped.

    With `statement_s` it is a transaction as of `limits.limited`.
    """
    with closing(Database(load(home), home)) as database:
        start_server(database)
        with limited(database, statement_s) if statement_s else database.connection() as opened:
            database.verify(opened)
            yield opened


def theme_named(reading: Connection, name: str, settings: Settings) -> str:
    """The theme in which the rows of the theme with this name are stored: its person's, if it is a linked account."""
    return person_of(reading, stored_name(name, settings))


def own_theme(home: Path, settings: Settings) -> str:
    """The theme of an agent that is started in a terminal here. Raises BadArgument when its name is reserved."""
    project = project_of(working_folder("cli")) if "{project}" in settings.theme_template else ""
    identity = Identity(agent_identity=profile_name(home), platform="cli", project=project)
    return templated_theme(identity, settings)


def permitted(name: str, home: Path, settings: Settings) -> str:
    """The theme with this name, without a name that of the home. Raises BadArgument when `allowed_themes` lacks it."""
    theme = stored_name(name, settings) if name else own_theme(home, settings)
    if not allowed(theme, settings.allowed_themes):
        raise BadArgument(f"this theme is not in allowed_themes: {theme}; give one of them as --theme")
    return theme


@contextmanager
def running(settings: Settings, home: Path) -> Iterator[Runtime]:
    """The runtime of a home, as an agent has it; it is closed at the end. Raises SettingsError."""
    runtime = acquire(settings, home)
    try:
        yield runtime
    finally:
        release(runtime)


@contextmanager
def ready(settings: Settings, home: Path, console: Console) -> Iterator[Runtime]:
    """The runtime of a home whose database answers; starts an embedded server that is stopped.

    Raises SettingsError and DatabaseUnavailable.
    """
    with ExitStack() as stack:
        with console.busy("connecting"):
            start_server(Database(settings, home))
            runtime = stack.enter_context(running(settings, home))
            wait_ready(runtime)
        yield runtime


def wait_ready(runtime: Runtime) -> None:
    """Wait for the database until it answers or an attempt fails. An embedded server may have to start and migrate.

    Raises DatabaseUnavailable.
    """
    deadline = time.monotonic() + READY_S_MAX
    while not runtime.wait_ready(0.1):
        problem = runtime.writer.health.problem
        if problem or time.monotonic() > deadline:
            raise DatabaseUnavailable(problem or f"the memory is not ready after {READY_S_MAX:g} s")


def in_full(runtime: Runtime, reason: str) -> str:
    """Why a recall was degraded, by the reason that a model was given: with the error of its embedder."""
    if reason.startswith(WORDS_ONLY):
        why = runtime.compatibility.usable()
        if not isinstance(why, str):
            why = ": ".join(filter(None, (WORDS_ONLY, runtime.compatibility.condition().problem)))
        reason = why + reason.removeprefix(WORDS_ONLY)
    return safe_line(reason, REASON_CHARS_MAX)


def administrators_dsn(
    settings: Settings, home: Path, console: Console, dsn: str, *, create: bool = False
) -> tuple[str, bool]:
    """The connection string for an administrator's command, and whether it is that of an embedded server.

    It is `dsn`, else HERMES_PGVECTOR_ADMIN_DSN, else that of the settings, or of the owner of an embedded server, which
    is started as `start_server` does. Raises BadArgument or SettingsError when the string is not a DSN.
    """
    given = dsn or os.environ.get(ADMIN_DSN, "")
    if given:
        try:
            parsed(given, "--dsn" if dsn else ADMIN_DSN)
        except SettingsError as error:
            raise BadArgument(str(error)) if dsn else error from None
        return given, False
    database = Database(settings, home)
    if database.server is not None:
        with console.busy("starting the embedded server"):
            start_server(database, create=create)
        return database.server.dsn, True
    return database.dsn, False


@contextmanager
def administrators_database(settings: Settings, home: Path, console: Console, dsn: str) -> Iterator[Database]:
    """The database of a home with a verified schema, over the connection string of `administrators_dsn`."""
    target, _ = administrators_dsn(settings, home, console, dsn)
    with closing(Database(settings.model_copy(update={"dsn": SecretStr(target)}), home)) as database:
        with database.connection() as opened:
            database.verify(opened)
        yield database


def apply_missing(
    dsn: str,
    settings: Settings,
    console: Console,
    *,
    role: str | None = None,
    narrow: bool = True,
    dimensions: int | None = None,
) -> list[str]:
    """Apply the migrations that a database lacks, and return their names. `role` is granted what agents need, and with
    `narrow` loses what is more.

    New tables get vectors of `dimensions`, else as the embedder of the settings makes them. Raises as `migrate` does,
    and EmbedderUnavailable when only the embedder knows the number and does not answer.
    """
    if dimensions is None:
        with admin_connection(dsn) as connection:
            pending = migrations.pending(connection)
        if pending == [migration.name for migration in migrations.migration_files()]:
            dimensions = vector_length(settings)
        if dimensions is not None:
            console.say(f"vectors get {dimensions} dimensions, as the embedder of this home makes them")
    applied = migrations.migrate(dsn, runtime_role=role, narrow=narrow, dimensions=dimensions, progress=console.say)
    migrations.check_tables(dsn)
    return applied
