"""backup, restore: the database of the embedded server in one file."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from rich.filesize import decimal as size

from ..errors import BadArgument, SchemaNotApplied, SettingsError
from ..files import expanded, new_file, not_written
from ..mirror.home import Home
from ..settings import load
from ..store import statistics
from ..store.connection.database import Database
from ..store.embedded import dump, identity
from ..store.embedded.cluster import AGENT
from ..store.embedded.server import EmbeddedServer
from ..store.statistics import Totals
from .console import Console, counted
from .database import apply_missing


def backup(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Write a dump of the embedded database to a new file. Agents go on meanwhile. Returns 0."""
    server = _server(home, "pg_dump --format=custom")
    server.check_made()
    target = new_file(args.path).resolve()
    try:
        with console.busy("dumping the database"):
            dump.write(server, target, args.wait)
    except OSError as error:
        raise BadArgument(not_written(target, error)) from None
    written = target.stat().st_size
    console.data({"path": str(target), "bytes": written})
    console.show(f"backed up to {target} ({size(written)})")
    console.say(f"restore it with: hermes-pgvector restore {target}")
    return 0


def restore(home: Path, console: Console, args: argparse.Namespace) -> int:
    """Replace the embedded database by that of a dump, after a question. Returns 0, and 1 for a no."""
    server, settings = _server(home, "pg_restore"), load(home)
    path = expanded(args.path).resolve()
    if not path.is_file():
        raise BadArgument(f"{path} is no file; give a file that `backup` wrote")
    dump.check(path)
    present = _present(home, server)
    if present:
        rows = f"{counted(present.entries, 'entry', 'entries')} and {counted(present.turns, 'turn row')}"
        if not console.agreed(args, f"{rows} are in the database now, and are lost. Replace them?"):
            return 1
    try:
        with console.busy("restoring"):
            server.ensure_running()
            dump.restore(server, path, args.wait, lambda dsn: apply_missing(dsn, settings, console, role=AGENT))
    except KeyboardInterrupt:
        console.say("interrupted; the database is that of before, or already that of the dump; run it again to be sure")
        raise
    state = Home(home).state
    (state / identity.FILE).unlink(missing_ok=True)
    identity.note(state, server.paths.data)
    restored = _present(home, server) or Totals(0, 0, 0, 0, 0, 0, 0, 0)
    console.data({"path": str(path), "entries": restored.entries, "turns": restored.turns, "facts": restored.facts})
    console.show(f"restored {counted(restored.entries, 'entry', 'entries')} and {counted(restored.turns, 'turn row')}")
    return 0


def _server(home: Path, program: str) -> EmbeddedServer:
    settings = load(home)
    database = Database(settings, home)
    if database.server is None:
        raise SettingsError(f"this home uses {database.label}, not the embedded server; use {program} on that database")
    return database.server


def _present(home: Path, server: EmbeddedServer) -> Totals | None:
    """What is in the database now; None when there is none, or it has no schema."""
    if not server.paths.data.exists():
        return None
    try:
        server.ensure_running()
        with closing(Database(load(home), home)) as database, database.connection() as connection:
            return statistics.totals(connection)
    except SchemaNotApplied:
        return None
