"""server: show, start or stop the embedded Postgres of a home."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..errors import SettingsError
from ..settings import Settings, load
from ..store.connection.database import no_database
from ..store.connection.dsn import describe
from ..store.embedded.server import EmbeddedServer, available
from ..store.schema import migrations
from ..store.schema.preflight import admin_connection
from .console import Console, facts_table, size
from .embedder import vector_length
from .overview import ABSENT


def server(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `server` command."""
    if args.action == "stop":
        return _stop(home, console, args)
    return _start(home, console) if args.action == "start" else _status(home, console)


def _status(home: Path, console: Console) -> int:
    found = _server(load(home), home).status()
    console.data(
        {
            "running": found.running,
            "pid": found.pid,
            "version": found.version,
            "data_dir": str(found.data_dir),
            "socket_dir": str(found.socket_dir),
            "account": found.account,
            "bytes": found.size_bytes,
        }
    )
    if not found.account:
        console.show(ABSENT)
        return 1
    state = f"running as process {found.pid}" if found.running else "stopped"
    console.show(
        facts_table(
            [
                ("Server", f"{state}, Postgres {found.version}, account {found.account}"),
                ("Data", f"{found.data_dir} ({size(found.size_bytes)})"),
                ("Socket", str(found.socket_dir)),
            ]
        )
    )
    return 0 if found.running else 1


def _start(home: Path, console: Console) -> int:
    """Start the server; create its data folder and its tables when they are missing. Returns 0."""
    settings = load(home)
    if settings.dsn.get_secret_value():
        where = describe(settings.dsn.get_secret_value())
        raise SettingsError(f"dsn is set, so this home uses {where}; remove dsn to use the embedded server")
    if not available():
        raise SettingsError(no_database())
    server = _server(settings, home)
    with console.busy("starting the embedded server"):
        started = server.ensure_running()
        with admin_connection(server.dsn) as connection:
            pending = migrations.pending(connection)
        if pending:
            migrations.migrate(server.dsn, dimensions=vector_length(settings), progress=console.say)
    console.data({"started": started, "data_dir": str(server.paths.data)})
    console.show("started" if started else "already running")
    return 0


def _stop(home: Path, console: Console, args: argparse.Namespace) -> int:
    server = _server(load(home), home)
    with console.busy("stopping the embedded server"):
        stopped = server.stop(mode=args.mode)
    console.data({"stopped": stopped, "data_dir": str(server.paths.data)})
    console.show("stopped" if stopped else "not running")
    if stopped:
        console.say("a running session starts it again when it next needs the database")
    return 0


def _server(settings: Settings, home: Path) -> EmbeddedServer:
    return EmbeddedServer(home, settings.data_dir)
