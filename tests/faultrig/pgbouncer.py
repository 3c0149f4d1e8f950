"""pgbouncer in transaction mode in front of a Postgres."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# The libraries by their names in Debian 12 and in Debian 13.
PACKAGES = ("pgbouncer", "libc-ares2", "libevent-2.1-7", "libcares2", "libevent-2.1-7t64")
CACHE = Path(__file__).parents[2] / ".cache" / "pgbouncer"
SERVERS_MAX = 3
PORT = 6432


@dataclass
class Pooler:
    """A running pgbouncer at `dsn`; `kill` and `start` may be called repeatedly."""

    dsn: str
    folder: Path
    command: list[str]
    _process: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        account = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
        with (self.folder / "log").open("ab") as log:
            self._process.append(
                subprocess.Popen(
                    self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    env={"LD_LIBRARY_PATH": str(self.folder)}, **account,  # type: ignore[call-overload]
                )
            )  # fmt: skip
        deadline = time.monotonic() + 10
        while True:
            try:
                psycopg.connect(self.dsn).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        process = self._process.pop()
        process.kill()
        process.wait()
        (self.folder / f".s.PGSQL.{PORT}").unlink(missing_ok=True)


@contextmanager
def pooled(dsn: str) -> Iterator[Pooler]:
    """A pooler with few connections to the database of `dsn`."""
    folder = Path(tempfile.mkdtemp(prefix="hpb", dir="/tmp"))
    try:
        for file in _programs():
            shutil.copy(file, folder)
        to = conninfo_to_dict(dsn)
        wanted = {key: to[key] for key in ("host", "port", "dbname", "user", "password") if to.get(key)}
        lines = [
            "[databases]",
            f"pooled = {' '.join(f'{key}={value}' for key, value in wanted.items())}",
            "[pgbouncer]", "pool_mode = transaction", "auth_type = any", "max_client_conn = 300",
            f"unix_socket_dir = {folder}", f"listen_port = {PORT}", f"default_pool_size = {SERVERS_MAX}",
        ]  # fmt: skip
        (folder / "ini").write_text("\n".join(lines))
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (folder, *folder.iterdir()):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        pooler = Pooler(
            make_conninfo(host=str(folder), port=PORT, dbname="pooled", user="agent"),
            folder,
            [str(folder / "pgbouncer"), "-q", str(folder / "ini")],
        )
        pooler.start()
        yield pooler
        pooler.kill()
    finally:
        shutil.rmtree(folder)


def _programs() -> list[Path]:
    """pgbouncer and its libraries, from the packages of Debian when it is not installed."""
    installed = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if installed:
        return [Path(installed)]
    if not (CACHE / "usr/sbin/pgbouncer").exists():
        _fetch()
    found = [CACHE / "usr/sbin/pgbouncer", *CACHE.glob("usr/lib/*/*.so.*")]
    if not found[0].exists():
        pytest.skip("needs pgbouncer: apt-get install pgbouncer")
    return found


def _fetch() -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        subprocess.run(["apt-get", "download", package], cwd=CACHE, capture_output=True, check=False, timeout=60)
    for archive in CACHE.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", archive, CACHE], check=False, capture_output=True)
