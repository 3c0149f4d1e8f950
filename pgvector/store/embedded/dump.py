"""Logical dumps of the embedded database, made and restored: the files of a live server cannot be copied."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from ...errors import DatabaseUnavailable, PgvectorError, Refused
from . import cluster
from .programs import program
from .server import EmbeddedServer
from .system import account_of, run

NAME = "memory.dump"
START_S_MAX = 30.0
RESTORED, REPLACED = "hermes_restored", "hermes_replaced"
SWAP_S_MAX = 30.0
_MIB = 1 << 20


def fresh_dump(server: EmbeddedServer, folder: Path, *, age_s_max: float, timeout_s: float) -> Path | None:
    """The path of a dump in `folder`; it is made now unless the last one is younger than `age_s_max` seconds.

    The file has pg_dump's own format, for `pg_restore`, and mode 0600. A stopped server is started for it and stopped
    again. Returns None when there is no server. Raises DatabaseUnavailable when the dump cannot be made within about
    `timeout_s` seconds, PgvectorError when the disk may have no room for it, SettingsError without Postgres' programs,
    and OSError; an older dump then stays.
    """
    if not server.paths.data.exists():
        return None
    target = folder / NAME
    if target.exists() and 0 <= time.time() - target.stat().st_mtime < age_s_max:
        return target
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write(server, target, timeout_s)
    return target


def write(server: EmbeddedServer, target: Path, timeout_s: float) -> None:
    """Write a dump to a file, in place of an older one, as `fresh_dump` does. Raises as it does."""
    needed, free = server.status().size_bytes, shutil.disk_usage(target.parent).free
    if free < needed:
        raise PgvectorError(
            f"{target.parent} has {free // _MIB} MiB free and the dump may need {needed // _MIB} MiB; free some space"
        )
    started = server.ensure_running(START_S_MAX)
    try:
        _dump(server, target, timeout_s)
    finally:
        if started:
            server.stop()


def check(path: Path) -> None:
    """Raise Refused unless the file is a dump of a memory that `pg_restore` of this release can read."""
    listing = _run(["pg_restore", "--list", str(path)], 60.0)
    if listing is None or "hermes_pgvector_migrations" not in listing:
        other = "an archive of `export` is for: hermes-pgvector import PATH"
        raise Refused(f"{path} is no dump of a memory, or a damaged one; nothing is changed; {other}")


def restore(server: EmbeddedServer, path: Path, timeout_s: float, complete: Callable[[str], object]) -> None:
    """Put the database of a dump in the place of that of a running server.

    It is restored beside the present one, which goes on until then and stays when something fails. `complete` gets the
    DSN of the restored database, and makes it one that agents can use, before it takes the place. Connections to the
    present one are closed; agents open new ones. Raises DatabaseUnavailable, Refused for a damaged file and while
    another process restores one, and what `complete` raises.
    """
    check(path)
    with psycopg.connect(_dsn(server, "postgres"), autocommit=True) as administrator:
        # Held until the connection closes: two would drop each other's database.
        lock = administrator.execute("select pg_try_advisory_lock(hashtext(%s))", (RESTORED,))
        if lock.fetchone() != (True,):
            raise Refused("another restore of this database is running; wait until it has ended")
        administrator.execute(f"drop database if exists {RESTORED} with (force)".encode())
        administrator.execute(f"create database {RESTORED}".encode())
        try:
            options = ["--no-owner", "--no-privileges", "--exit-on-error", f"--dbname={_dsn(server, RESTORED)}"]
            output = _run(["pg_restore", *options, str(path)], timeout_s)
            if output is None:
                raise Refused(f"{path} is damaged: pg_restore failed; nothing is changed")
            complete(_dsn(server, RESTORED))
            _swap(administrator)
        finally:
            # The present database has the second name only after the swap.
            for name in (RESTORED, REPLACED):
                administrator.execute(f"drop database if exists {name} with (force)".encode())


def _swap(administrator: psycopg.Connection) -> None:
    """Give the restored database the name of the present one, in one transaction; agents may connect meanwhile."""
    administrator.execute(f"drop database if exists {REPLACED} with (force)".encode())
    deadline = time.monotonic() + SWAP_S_MAX
    while True:
        administrator.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", (cluster.DATABASE,)
        )
        try:
            with administrator.transaction():
                administrator.execute(f"alter database {cluster.DATABASE} rename to {REPLACED}".encode())
                administrator.execute(f"alter database {RESTORED} rename to {cluster.DATABASE}".encode())
            return
        except psycopg.errors.ObjectInUse:
            if time.monotonic() > deadline:
                raise DatabaseUnavailable("agents use the database all the time; stop them, and try again") from None
        time.sleep(0.1)


def _dsn(server: EmbeddedServer, database: str) -> str:
    return make_conninfo(server.dsn, dbname=database)


def _run(command: list[str], timeout_s: float) -> str | None:
    """What one of Postgres' programs prints; None when it fails."""
    name, *arguments = command
    account, deadline = account_of(os.geteuid()), time.monotonic() + timeout_s
    code, output = run(account, [str(program(name)), *arguments], deadline, remedy="give it more time by --wait")
    return None if code else output


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
