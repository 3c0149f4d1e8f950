"""migrate: create or upgrade the tables, as the database's administrator."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..settings import load
from ..store.connection.dsn import describe
from ..store.schema import migrations, verification
from ..store.schema.preflight import admin_connection
from .console import Console
from .database import administrators_dsn
from .embedder import vector_length


def migrate(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Apply the missing migrations and grant `--runtime-role` what agents need. Returns 0."""
    settings = load(home)
    target, embedded = administrators_dsn(settings, home, console, args.dsn, create=True)
    with admin_connection(target) as connection:
        pending = migrations.pending(connection)
    dimensions: int | None = args.dimensions
    if dimensions is None and pending == [migration.name for migration in migrations.migration_files()]:
        dimensions = vector_length(settings)
        if dimensions is not None:
            console.say(f"vectors get {dimensions} dimensions, as this home's embedder makes them; see --dimensions")
    applied = migrations.migrate(target, runtime_role=args.runtime_role, dimensions=dimensions, progress=console.say)
    with admin_connection(target) as connection:
        stored = verification.verify(connection).dimensions
    where = "the embedded server" if embedded else describe(target)
    console.data(
        {"database": where, "applied": applied, "version": verification.LATEST, "runtime_role": args.runtime_role}
    )
    if applied:
        console.show(f"applied {', '.join(applied)} to {where}")
    else:
        console.show(f"nothing to do: {where} has schema version {verification.LATEST}")
    if dimensions not in (None, stored):
        console.say(
            f"--dimensions {dimensions} was ignored: the tables exist and have vectors of {stored} dimensions; "
            "for another number create an empty database, run migrate on it, and set dsn to it"
        )
    return 0
