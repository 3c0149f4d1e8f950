"""A logical dump of the embedded database, for the host's backup: the files of a live server cannot be copied."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from uuid import uuid4

from ...errors import DatabaseUnavailable
from . import cluster
from .programs import program
from .server import EmbeddedServer
from .system import account_of, run

NAME = "memory.dump"
START_S_MAX = 30.0


def fresh_dump(server: EmbeddedServer, folder: Path, *, age_s_max: float, timeout_s: float) -> Path | None:
    """The path of a dump in `folder`; it is made now unless the last one is younger than `age_s_max` seconds.

    The file has pg_dump's own format, for `pg_restore`, and mode 0600. A stopped server is started for it and stopped
    again. Returns None when there is no server. Raises DatabaseUnavailable when the dump cannot be made within about
    `timeout_s` seconds, SettingsError without Postgres' programs, and OSError; an older dump then stays.
    """
    if not server.paths.data.exists():
        return None
    target = folder / NAME
    if target.exists() and 0 <= time.time() - target.stat().st_mtime < age_s_max:
        return target
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    needed, free = server.status().size_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise DatabaseUnavailable(
            f"{folder} has {free >> 20} MiB left, and the dump may need {needed >> 20}: free some"
        )
    started = server.ensure_running(START_S_MAX)
    try:
        _dump(server, target, timeout_s)
    finally:
        if started:
            server.stop()
    return target


def _dump(server: EmbeddedServer, target: Path, timeout_s: float) -> None:
    part = target.with_name(f"{target.name}.{uuid4().hex}")
    options = ["--format=custom", "--no-owner", "--no-privileges", f"--file={part}", server.dsn]
    deadline = time.monotonic() + timeout_s
    try:
        part.touch(mode=0o600)
        code, output = run(
            account_of(os.geteuid()), [str(program("pg_dump")), *options], deadline, remedy="dump it by hand"
        )
        if code:
            raise DatabaseUnavailable(f"pg_dump failed: {cluster.tail(output)}")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
