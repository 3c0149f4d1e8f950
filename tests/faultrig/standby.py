"""Servers that follow others: a standby of the server of a test, and a primary with a standby for one test alone."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from fast_folder import fast_folder
from faultrig.postgres import kill_at_once
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import Server, _account, _make_folder
from waiting import wait_for

from hermes_memory_pgvector.store.schema.migrations import migrate

AGENT, DATABASE = "agent", "memory"
_OPTIONS = {"listen_addresses": "''", "fsync": "off", "shared_buffers": "32MB", "max_connections": "100"}


class Node:
    """A Postgres with its data and its socket in a folder. `start` it; it ends with `kill` or `remove`."""

    def __init__(self, programs: Path, folder: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hpr", dir=folder or fast_folder()))
        _make_folder(self.folder)
        self.folder.chmod(0o711)
        self.programs, self.data = programs, self.folder / "data"

    def dsn(self, **parts: Any) -> str:
        return make_conninfo(**{"host": str(self.folder), "user": "postgres", "dbname": "postgres", **parts})

    def run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self.programs / program, "-D", str(self.data), *arguments], check=True, cwd=self.folder, timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **_account(),  # type: ignore[call-overload]
        )  # fmt: skip

    def start(self) -> None:
        options = " ".join(f"-c {name}={value}" for name, value in _OPTIONS.items())
        options = f"{options} -c unix_socket_directories={self.folder}"
        self.run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")

    def follow(self, source: str) -> None:
        """Copy the server with the socket folder `source`, and start as a standby of it that may lag."""
        self.run("pg_basebackup", "-h", source, "-U", "postgres", "-R", "-c", "fast")
        self.start()

    def ask(self, statement: LiteralString) -> Any:
        """Run a statement as the administrator in autocommit mode; returns the first value of its answer, if any."""
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            answer = connection.execute(statement)
            row = answer.fetchone() if answer.description else None
        return row[0] if row else None

    def kill(self) -> None:
        """End the server as a power loss of its machine does: all its processes at once."""
        kill_at_once(self.data)

    def cut(self) -> None:
        """End the stream from the primary, so that the standby lags more and more."""
        self.ask("alter system set primary_conninfo = ''")
        self.ask("select pg_reload_conf()")
        wait_for(lambda: self.ask("select count(*) from pg_stat_wal_receiver") == 0)

    def promote(self) -> None:
        assert self.ask("select pg_promote(true, 60)")

    def remove(self) -> None:
        if (self.data / "postmaster.pid").exists():
            subprocess.run(
                [self.programs / "pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop"], cwd=self.folder,
                timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **_account(),  # type: ignore[call-overload]
            )  # fmt: skip
        shutil.rmtree(self.folder)


class Pair:
    """A primary with a migrated database, and a standby that streams from it."""

    def __init__(self, primary: Node, standby: Node) -> None:
        self.primary, self.standby = primary, standby

    @property
    def agents_dsn(self) -> str:
        """Both servers, for the role of agents, which may only read and write rows."""
        hosts = f"{self.primary.folder},{self.standby.folder}"
        return make_conninfo(host=hosts, user=AGENT, dbname=DATABASE, target_session_attrs="read-write")

    def catch_up(self) -> None:
        """Wait until the standby has all of the primary."""
        position = self.primary.ask("select pg_current_wal_lsn()")
        wait_for(lambda: _reached(self.standby, position))


def _reached(node: Node, position: str) -> bool:
    with psycopg.connect(node.dsn(), autocommit=True) as connection:
        row = connection.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [position]).fetchone()
    return bool(row and row[0])


@contextmanager
def standby_of(server: Server) -> Iterator[Node]:
    """A standby of the server of a test."""
    assert server.bin
    node = Node(server.bin)
    try:
        node.follow(str(conninfo_to_dict(server.dsn)["host"]))
        yield node
    finally:
        node.remove()


@contextmanager
def pair(prepared: Path, folder: Path | None = None) -> Iterator[Pair]:
    """A pair on a copy of the prepared cluster of one version; see `servers.prepared`.

    With the migrations of `folder` its schema is an older one, which agents have no rights to.
    """
    programs = (prepared / "bin").resolve()
    primary, standby = Node(programs, prepared.parent), Node(programs, prepared.parent)
    try:
        # `cp` as root keeps the owner.
        subprocess.run(["cp", "-Rp", prepared / "cluster" / "data", primary.folder], check=True, timeout=60)
        primary.start()
        primary.ask(f"create role {AGENT} login")
        primary.ask(f"create database {DATABASE}")
        role = None if folder else AGENT
        migrate(primary.dsn(dbname=DATABASE), folder=folder, dimensions=384, runtime_role=role)
        standby.follow(str(primary.folder))
        yield Pair(primary, standby)
    finally:
        standby.remove()
        primary.remove()
