"""What the scenarios run on: a Postgres, an embedding server and agent processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from servers import server_process, throwaway_postgres

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

HERE = Path(__file__).resolve().parent
DIMENSIONS = 768


@dataclass(frozen=True)
class Package:
    """A package under test: its name, its Python and its template database."""

    name: str
    python: str
    template: str


class AgentProcess:
    """A child process that runs agent.py. `process("send", per_s=3)` calls that method of `agent.Agent`."""

    def __init__(self, package: Package, setup: dict[str, Any], log: Path) -> None:
        self._log = log
        keep = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [package.python, str(HERE / "agent.py"), package.name, json.dumps(setup)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=keep, cwd=setup["home"],
            )  # fmt: skip

    def begin(self, method: str, **arguments: Any) -> None:
        """Call a method without waiting. `end` returns its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """Wait for the answer to the oldest call. Raises RuntimeError when the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent process ended:\n{self._log.read_text()[-2000:]}")
        return json.loads(line)

    def __call__(self, method: str, **arguments: Any) -> Any:
        self.begin(method, **arguments)
        return self.end()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Environment:
    """Made by `environment()`. `server` is None when the Postgres was given by `--dsn`."""

    dsn: str
    embed_url: str
    folder: Path
    server: EmbeddedServer | None

    def package(self, name: str, python: str) -> Package:
        """Create the migrated template database of a package."""
        template = f"bench_{name}_{uuid4().hex[:8]}"
        self.execute(sql.SQL("create database {}").format(sql.Identifier(template)))
        if name == "ours":
            migrate(self.dsn_of(template), dimensions=DIMENSIONS)
        else:
            command = [python, "-m", "hermes_pgvector", "migrate", "--admin-dsn", self.dsn_of(template)]
            subprocess.run(command, check=True, capture_output=True, cwd=self.folder, timeout=60)
        return Package(name, python, template)

    @contextmanager
    def database(self, package: Package) -> Iterator[str]:
        """Create a migrated, empty database; gives its DSN. It is dropped at the end of the block."""
        name = f"bench_{uuid4().hex[:12]}"
        create = sql.SQL("create database {} template {}")
        self.execute(create.format(sql.Identifier(name), sql.Identifier(package.template)))
        try:
            yield self.dsn_of(name)
        finally:
            self.drop(name)

    @contextmanager
    def agents(self, package: Package, dsn: str, count: int = 1, **settings: Any) -> Iterator[list[AgentProcess]]:
        """Start agent processes, each with its own home. They are killed at the end of the block."""
        made: list[AgentProcess] = []
        try:
            for _ in range(count):
                home = Path(tempfile.mkdtemp(prefix="home-", dir=self.folder))
                setup = {"dsn": dsn, "embed_url": self.embed_url, "home": str(home), "settings": settings}
                made.append(AgentProcess(package, setup, home / "agent.log"))
            yield made
        finally:
            for agent in made:
                agent.kill()

    def execute(self, statement: sql.Composable) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def drop(self, name: str) -> None:
        self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def dsn_of(self, database: str) -> str:
        return make_conninfo(self.dsn, dbname=database)


@contextmanager
def environment(dsn: str, request_ms: float, text_ms: float) -> Iterator[Environment]:
    """An environment with the Postgres at `dsn`, or with a throw-away one. Everything it made is deleted at the end."""
    command = [sys.executable, HERE / "embedding_server.py", str(request_ms), str(text_ms), str(DIMENSIONS)]
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-")))
        # The peer's processes of the scenario `fleet` need more than the default of 100 connections.
        server = None if dsn else ending.enter_context(throwaway_postgres(max_connections="400"))
        embed_url = ending.enter_context(server_process(command))
        yield Environment(server.dsn if server else dsn, embed_url, folder, server)
