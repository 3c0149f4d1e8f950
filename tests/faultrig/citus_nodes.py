"""The servers of a Citus cluster, which a test may kill and configure, and a distributed database on it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import citus
import psycopg
from faultrig.postgres import kill_at_once
from psycopg.conninfo import conninfo_to_dict

from hermes_memory_pgvector.store.schema.distribution import distribute
from hermes_memory_pgvector.store.schema.migrations import migrate


class Node:
    """The coordinator or a worker."""

    def __init__(self, data: Path, port: int) -> None:
        self.data, self.port = data, port
        self._programs = Path((data / "postmaster.opts").read_text().split()[0]).parent

    def start(self) -> None:
        self._run("-l", str(self.data / "log"), "start")

    def set(self, **settings: str) -> None:
        """Change settings, with a restart."""
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self._run("-l", str(self.data / "log"), "-m", "fast", "restart")

    def kill(self) -> None:
        kill_at_once(self.data)

    def _run(self, *arguments: str) -> None:
        owner = self.data.stat()
        subprocess.run(
            [self._programs / "pg_ctl", "-D", str(self.data), "-w", *arguments], check=True, cwd="/", timeout=120,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=owner.st_uid,
            group=owner.st_gid, env={"HOME": "/", "LC_ALL": "C", "PATH": os.environ["PATH"]},
        )  # fmt: skip


class Nodes:
    """The nodes of a cluster, the coordinator first, and the DSN of a distributed database on it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        first = int(conninfo_to_dict(dsn)["port"] or 0)
        self.all = [Node(folder / f"node{number}", first + number) for number in range(3)]
        self.dsn = dsn


@contextmanager
def own_nodes() -> Iterator[Nodes]:
    """A cluster for one test, with a migrated and distributed database. Raises citus.NoCluster."""
    with citus.own_cluster() as (dsn, folder):
        with psycopg.connect(dsn, autocommit=True) as connection:
            # A transaction that was being prepared when a node died keeps its locks so long; a minute by default.
            connection.execute("alter system set citus.recover_2pc_interval = '1s'")
            connection.execute("select pg_reload_conf()")
        migrate(dsn, dimensions=384)
        distribute(dsn, lambda _line: None)
        yield Nodes(folder, dsn)
