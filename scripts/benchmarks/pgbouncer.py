"""PgBouncer in transaction mode in front of an embedded Postgres, for one run."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer

PORT = 6432
START_S_MAX = 10.0
CLIENTS_MAX = 2000


@contextmanager
def pgbouncer(server: EmbeddedServer, user: str, connections: int) -> Iterator[tuple[Path, int]]:
    """Start a PgBouncer that shares `connections` to the server among its clients; gives its socket and process id.

    It connects as `user`, whatever its clients say. Raises SystemExit when it is not installed or does not start.
    """
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if not program:
        raise SystemExit("PgBouncer is not installed: apt-get install pgbouncer")
    owner = os.stat(server.paths.data)
    account: dict[str, Any] = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="hpb", dir="/tmp") as name:
        folder = Path(name)
        admit(server, user)
        behind = next(server.paths.sockets.glob(".s.PGSQL.*[0-9]"))
        (folder / "ini").write_text(
            f"[databases]\n* = host={behind.parent} port={behind.suffix[1:]} user={user}\n"
            f"[pgbouncer]\npool_mode = transaction\nauth_type = any\nmax_client_conn = {CLIENTS_MAX}\n"
            f"default_pool_size = {connections}\nunix_socket_dir = {folder}\nlisten_port = {PORT}\n"
        )
        if os.geteuid() == 0:  # PgBouncer does not run as root, and only the owner of the data reaches the socket.
            os.chown(folder, owner.st_uid, owner.st_gid)
            os.chmod(folder / "ini", 0o644)
        else:
            account = {}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([program, "-q", folder / "ini"], stdout=log, stderr=log, cwd=folder, **account)
        try:
            socket = folder / f".s.PGSQL.{PORT}"
            deadline = time.monotonic() + START_S_MAX
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"PgBouncer did not start:\n{(folder / 'log').read_text()}")
                time.sleep(0.05)
            yield socket, process.pid
        finally:
            process.kill()
            process.wait()


def admit(server: EmbeddedServer, user: str) -> None:
    """Admit PgBouncer as `user`, until the server is started again: it runs under the account of the server."""
    account = pwd.getpwuid(os.stat(server.paths.data).st_uid).pw_name
    with (server.paths.state / "pg_ident.conf").open("a") as file:
        file.write(f'owner "{account}" {user}\n')
    with psycopg.connect(server.dsn) as connection:
        connection.execute("select pg_reload_conf()")
