"""A standby of the server of a test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict
from servers import Server, _account


@contextmanager
def standby_of(server: Server) -> Iterator[str]:
    """The folder of the socket of a server that follows another one."""
    folder, account = Path(tempfile.mkdtemp(prefix="hpr")), _account()
    if account:
        os.chown(folder, account["user"], account["group"])  # type: ignore[arg-type]
    folder.chmod(0o711)
    data, programs = str(folder / "data"), server.bin
    assert programs

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs / program, "-D", data, *arguments], check=True, cwd=folder, timeout=120,
            stdout=subprocess.DEVNULL, **account,  # type: ignore[call-overload]
        )  # fmt: skip

    try:
        run("pg_basebackup", "-h", str(conninfo_to_dict(server.dsn)["host"]), "-U", "postgres", "-R", "-c", "fast")
        options = f"-c unix_socket_directories={folder} -c listen_addresses=''"
        run("pg_ctl", "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield str(folder)
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
