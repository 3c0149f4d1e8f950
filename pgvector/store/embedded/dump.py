"""A logical dump of the embedded database, for the host's backup: a copy of the files of a live server is torn."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path
from uuid import uuid4

from ...errors import DatabaseUnavailable
from .os_account import clean_environment
from .programs import program
from .server import EmbeddedServer

NAME = "memory.dump"
START_S_MAX = 30.0


def fresh_dump(server: EmbeddedServer, folder: Path, *, age_s_max: float, timeout_s: float) -> Path | None:
    """The dump of a server's memory in `folder`, made now unless the last one is younger than `age_s_max` seconds.

    It is in pg_dump's own format, mode 0600, for `pg_restore`. A server that is stopped is started for it and stopped
    again. None when there is no server to dump. Raises DatabaseUnavailable when it cannot be made within about
    `timeout_s` seconds, SettingsError without Postgres' programs, and OSError; an older dump stays.
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
    command = [
        str(program("pg_dump")),
        "--format=custom",
        "--no-owner",
        "--no-privileges",
        f"--file={part}",
        server.dsn,
    ]
    try:
        part.touch(mode=0o600)
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=timeout_s,
            env=clean_environment(), cwd="/", check=False,
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise DatabaseUnavailable(f"pg_dump failed: {said[-1][:300]}")
        part.replace(target)
    except subprocess.TimeoutExpired:
        raise DatabaseUnavailable(f"pg_dump did not finish within {timeout_s:g} s; dump it by hand") from None
    finally:
        part.unlink(missing_ok=True)
