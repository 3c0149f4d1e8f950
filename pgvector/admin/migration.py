"""migrate: bring the schema of a database up to date, as its administrator."""

from __future__ import annotations

import os
from pathlib import Path

from ..embedding import factory
from ..errors import EmbedderUnavailable, PgvectorError, SettingsError
from ..settings import Settings, load
from ..store.connection.database import Database
from ..store.connection.dsn import describe, parsed
from ..store.embedded.server import EmbeddedServer
from ..store.schema import migrations, verification
from ..store.schema.preflight import admin_connection
from .console import Console

ADMIN_DSN = "HERMES_PGVECTOR_ADMIN_DSN"
PROBE_S_MAX = 5.0


def migrate(home: Path, console: Console, *, dsn: str, role: str | None, dimensions: int | None) -> int:
    """Apply what is missing. The database is that of `dsn`, else of the environment, else of the settings."""
    settings = load(home)
    target, own = administrators_dsn(settings, home, console, dsn, make=True)
    with admin_connection(target) as connection:
        lacking = migrations.pending(connection)
    if dimensions is None and lacking == [migration.name for migration in migrations.migration_files()]:
        dimensions = _embedder_dimensions(settings)
        if dimensions is not None:
            console.say(f"vectors get {dimensions} numbers, those of this home's embedder; --dimensions overrides it")
    applied = migrations.migrate(target, runtime_role=role, dimensions=dimensions, progress=console.say)
    with admin_connection(target) as connection:
        length = verification.verify(connection).dimensions
    where = "the embedded server" if own and not settings.dsn.get_secret_value() else describe(target)
    console.data({"database": where, "applied": applied, "version": verification.LATEST, "runtime_role": role})
    if applied:
        console.show(f"applied {', '.join(applied)} to {where}")
    else:
        console.show(f"nothing to do: {where} has schema version {verification.LATEST}")
    if dimensions not in (None, length):
        console.say(
            f"--dimensions {dimensions} was ignored: the vectors of these tables have {length} numbers and keep them; "
            "for others run migrate on an empty database, and let dsn name that one"
        )
    return 0


def prepare_embedded(server: EmbeddedServer, settings: Settings, console: Console) -> None:
    """Give a running embedded server the schema that this home's embedder needs."""
    with admin_connection(server.dsn) as connection:
        lacking = migrations.pending(connection)
    if lacking:
        migrations.migrate(server.dsn, dimensions=_embedder_dimensions(settings), progress=console.say)


def administrators_dsn(
    settings: Settings, home: Path, console: Console, dsn: str, *, make: bool = False
) -> tuple[str, bool]:
    """Where an administrator's command goes: `dsn`, else what the environment names, else the home's own database.

    True with it when it is the home's own. An embedded server is started as `start_server` does. Raises SettingsError
    when it is no DSN.
    """
    given = dsn or os.environ.get(ADMIN_DSN, "")
    if given:
        parsed(given, "--dsn" if dsn else ADMIN_DSN)
        return given, False
    database = Database(settings, home)
    if database.server is not None:
        with console.busy("starting the embedded server"):
            start_server(database, make=make)
    return database.dsn, True


def start_server(database: Database, *, make: bool = False) -> None:
    """Start the server of an embedded database. Without `make` it has to be there: a home may be mistyped."""
    if database.server is not None:
        if not make:
            database.server.check_made()
        database.server.ensure_running()


def _embedder_dimensions(settings: Settings) -> int | None:
    """The vector length of the home's embedder, asked for when it is not known; None when there is no embedder."""
    try:
        embedder = factory.build(settings)
    except SettingsError:
        return None
    try:
        if embedder.dimensions is None:
            embedder.embed_query("dimensions", PROBE_S_MAX)
        return embedder.dimensions
    except EmbedderUnavailable as error:
        raise EmbedderUnavailable(
            f"the vector length of {embedder.model} is unknown until it answers ({error}); give --dimensions N"
        ) from None
    except PgvectorError:
        return None
    finally:
        embedder.close()
