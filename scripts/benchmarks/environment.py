"""What the scenarios run on: a Postgres, an embedding server and agent processes."""

from __future__ import annotations

import contextlib
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
from servers import ServerProcess, controlled_process, throwaway_postgres

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

HERE = Path(__file__).resolve().parent
DIMENSIONS = 768
EXIT_S_MAX = 60.0


@dataclass(frozen=True)
class Package:
    """A package under test: its name, its Python and its template database."""

    name: str
    python: str
    template: str


class AgentProcess:
    """A child process that runs agent_process.py. `process("send", per_s=3)` calls that method of its `Agent`."""

    def __init__(self, package: Package, setup: dict[str, Any], home: Path) -> None:
        self.home, self._log = home, home / "agent.log"
        keep = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        # Installed packages are compiled.
        keep.pop("PYTHONDONTWRITEBYTECODE", None)
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                [package.python, "-P", str(HERE / "agent_process.py"), package.name, json.dumps(setup)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=keep, cwd=home,
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

    def finish(self) -> None:
        """Let the process end by itself, with all that it does at its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(EXIT_S_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()


@dataclass
class Environment:
    """Made by `environment()`. `server` is None when the Postgres was given by `--dsn`."""

    dsn: str
    embed_url: str
    embedder_ms: tuple[float, float]
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
    def database(self, package: Package, dimensions: int = DIMENSIONS) -> Iterator[str]:
        """Create a migrated, empty database; gives its DSN. It is dropped at the end of the block."""
        name = f"bench_{uuid4().hex[:12]}"
        template = "template1" if dimensions != DIMENSIONS else package.template
        create = sql.SQL("create database {} template {}")
        self.execute(create.format(sql.Identifier(name), sql.Identifier(template)))
        try:
            if template != package.template:
                migrate(self.dsn_of(name), dimensions=dimensions)
            yield self.dsn_of(name)
        finally:
            self.drop(name)

    @contextmanager
    def agents(
        self,
        package: Package,
        dsn: str,
        count: int = 1,
        *,
        embed_url: str | None = None,
        missing_modules: tuple[str, ...] = (),
        **settings: Any,
    ) -> Iterator[list[AgentProcess]]:
        """Start agent processes, each with its own home. They are killed at the end of the block.

        `embed_url` replaces the address of the embedder; an empty one means the bundled model.
        """
        made: list[AgentProcess] = []
        setup = {
            "dsn": dsn,
            "embed_url": self.embed_url if embed_url is None else embed_url,
            "settings": settings,
            "missing_modules": missing_modules,
        }
        try:
            for _ in range(count):
                home = Path(tempfile.mkdtemp(prefix="home-", dir=self.folder))
                made.append(AgentProcess(package, {**setup, "home": str(home)}, home))
            yield made
        finally:
            for agent in made:
                agent.kill()

    @contextmanager
    def embedder(self) -> Iterator[ServerProcess]:
        """Start an embedder of its own, which can be told to fail; see embedding_server.py."""
        with controlled_process(_embedder_command(*self.embedder_ms)) as server:
            yield server

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
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-")))
        # The peer's processes of the scenario `sessions` need more than the default of 100 connections.
        server = None if dsn else ending.enter_context(throwaway_postgres(max_connections="400"))
        embedder = ending.enter_context(controlled_process(_embedder_command(request_ms, text_ms)))
        yield Environment(server.dsn if server else dsn, embedder.address, (request_ms, text_ms), folder, server)


def _embedder_command(request_ms: float, text_ms: float) -> list[str | Path]:
    return [sys.executable, HERE / "embedding_server.py", str(request_ms), str(text_ms), str(DIMENSIONS)]
