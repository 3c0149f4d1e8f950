"""server: show, start or stop the embedded Postgres of a home."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from rich.filesize import decimal as size

from ..errors import SettingsError
from ..hosts.environment import typed
from ..settings import load
from ..store.connection.database import Database
from ..store.connection.dsn import describe
from ..store.embedded.cluster import AGENT
from ..store.embedded.server import EmbeddedServer
from .console import Console, facts_table
from .database import apply_missing
from .overview import ABSENT


def server(home: Path, console: Console, args: argparse.Namespace) -> int:
    """The `server` command."""
    if args.action == "stop":
        return _stop(home, console, args)
    return _start(home, console) if args.action == "start" else _status(home, console)


def _status(home: Path, console: Console) -> int:
    settings = load(home)
    found, dsn = EmbeddedServer(home, settings.data_dir).status(), settings.dsn.get_secret_value()
    document = asdict(found)
    console.data({"bytes": document.pop("size_bytes"), **document})
    if not found.account:
        console.show(f"this home uses {describe(dsn)}, no embedded server" if dsn else typed(ABSENT, home))
        return 1
    state = f"running as process {found.pid}" if found.running else "stopped"
    facts = [
        ("Server", f"{state}, Postgres {found.version}, account {found.account}"),
        ("Data", f"{found.data_dir} ({size(found.size_bytes)})"),
        ("Socket", str(found.socket_dir)),
    ]
    console.show(facts_table(facts))
    return 0 if found.running else 1


def _start(home: Path, console: Console) -> int:
    """Start the server; create its data folder and its tables when they are missing. Returns 0."""
    settings = load(home)
    database = Database(settings, home)
    server = database.server
    if server is None:
        raise SettingsError(f"dsn is set, so this home uses {database.label}; remove dsn to use the embedded server")
    with console.busy("starting the embedded server"):
        started = server.ensure_running()
        apply_missing(server.dsn, settings, console, role=AGENT)
    console.data({"started": started, "data_dir": server.paths.data})
    console.show("started" if started else "already running")
    return 0


def _stop(home: Path, console: Console, args: argparse.Namespace) -> int:
    server = EmbeddedServer(home, load(home).data_dir)
    with console.busy("stopping the embedded server"):
        stopped = server.stop(mode=args.mode)
    console.data({"stopped": stopped, "data_dir": server.paths.data})
    console.show("stopped" if stopped else "not running")
    if stopped:
        console.say("a running session starts it again when it next needs the database")
    return 0
