"""server: the embedded Postgres of a home, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ..errors import SettingsError
from ..settings import Settings, load
from ..store.connection.database import no_database
from ..store.connection.dsn import describe
from ..store.embedded.server import EmbeddedServer, available
from .console import Console, facts_table, size
from .migration import prepare_embedded

Mode = Literal["smart", "fast", "immediate"]


def status(home: Path, console: Console) -> int:
    """Print where the server is and whether it runs; 1 when it does not."""
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
        console.show("there is no embedded server yet; the first session makes it, or: hermes-pgvector server start")
        return 1
    state = f"runs as process {found.pid}" if found.running else "stopped"
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


def start(home: Path, console: Console) -> int:
    """Start the server, making it and its schema when they are not there."""
    settings = load(home)
    if settings.dsn.get_secret_value():
        where = describe(settings.dsn.get_secret_value())
        raise SettingsError(f"dsn is set, so this home uses {where}; empty it to use the embedded server")
    if not available():
        raise SettingsError(no_database())
    server = _server(settings, home)
    with console.busy("starting the embedded server"):
        started = server.ensure_running()
        prepare_embedded(server, settings, console)
    console.data({"started": started, "data_dir": str(server.paths.data)})
    console.show("started" if started else "it runs already")
    return 0


def stop(home: Path, console: Console, *, mode: Mode) -> int:
    """Stop the server; a session that still runs starts it again when it needs it."""
    server = _server(load(home), home)
    with console.busy("stopping the embedded server"):
        stopped = server.stop(mode=mode)
    console.data({"stopped": stopped, "data_dir": str(server.paths.data)})
    console.show("stopped" if stopped else "it does not run")
    if stopped:
        console.say("a session that still runs starts it again with its next memory")
    return 0


def _server(settings: Settings, home: Path) -> EmbeddedServer:
    return EmbeddedServer(home, settings.data_dir)
