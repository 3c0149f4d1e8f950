"""What a benchmark plays on: a Postgres and an embedder of its own, and the processes of agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

HERE = Path(__file__).resolve().parent
DIMENSIONS = 768


@dataclass(frozen=True)
class Package:
    """A package under test: its name, the Python it is installed in, and the name of its template database."""

    name: str
    python: str
    template: str


class Agent:
    """The process of an agent; its methods are those of `agent.Agent`, called as `agent("say", count=3)`."""

    def __init__(self, package: Package, setup: dict[str, Any], log: Path) -> None:
        self._log = log
        keep = {name: value for name, value in os.environ.items() if not name.startswith("HERMES_")}
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [package.python, str(HERE / "agent.py"), package.name, json.dumps(setup)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=keep, cwd=setup["home"],
            )  # fmt: skip

    def begin(self, method: str, **arguments: Any) -> None:
        """Have it done without waiting; `end` waits."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([method, arguments]) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """The answer to the oldest call that was begun."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the agent ended:\n{self._log.read_text()[-2000:]}")
        return json.loads(line)

    def __call__(self, method: str, **arguments: Any) -> Any:
        self.begin(method, **arguments)
        return self.end()

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@dataclass
class Stage:
    """Made by `staged`. `server` is None when the Postgres is somebody else's."""

    dsn: str
    embed_url: str
    folder: Path
    server: EmbeddedServer | None

    def package(self, name: str, python: str) -> Package:
        """Make the template database of a package, and name what is needed to run it."""
        template = f"bench_{name}_{uuid4().hex[:8]}"
        self.execute(sql.SQL("create database {}").format(sql.Identifier(template)))
        if name == "ours":
            migrate(self.named(template), dimensions=DIMENSIONS)
        else:
            command = [python, "-m", "hermes_pgvector", "migrate", "--admin-dsn", self.named(template)]
            subprocess.run(command, check=True, capture_output=True, cwd=self.folder, timeout=60)
        return Package(name, python, template)

    @contextmanager
    def database(self, package: Package) -> Iterator[str]:
        """The DSN of a migrated, empty database of its own."""
        name = f"bench_{uuid4().hex[:12]}"
        create = sql.SQL("create database {} template {}")
        self.execute(create.format(sql.Identifier(name), sql.Identifier(package.template)))
        try:
            yield self.named(name)
        finally:
            self.drop(name)

    @contextmanager
    def agents(self, package: Package, dsn: str, count: int = 1, **settings: Any) -> Iterator[list[Agent]]:
        """Processes of agents, each with a home of its own; they are killed at the end."""
        made: list[Agent] = []
        try:
            for _ in range(count):
                home = Path(tempfile.mkdtemp(prefix="home-", dir=self.folder))
                setup = {"dsn": dsn, "embed_url": self.embed_url, "home": str(home), "settings": settings}
                made.append(Agent(package, setup, home / "agent.log"))
            yield made
        finally:
            for agent in made:
                agent.kill()

    def execute(self, statement: sql.Composable) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(statement)

    def drop(self, name: str) -> None:
        self.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def named(self, database: str) -> str:
        return make_conninfo(self.dsn, dbname=database)


@contextmanager
def staged(dsn: str, request_ms: float, text_ms: float) -> Iterator[Stage]:
    """A stage on the Postgres at `dsn`, or on one that is made for it; nothing is left of it at the end."""
    with tempfile.TemporaryDirectory(prefix="hermes-pgvector-bench-") as folder:
        # Root's Postgres runs under an account of its own, which has to get to its data.
        os.chmod(folder, 0o711 if os.geteuid() == 0 else 0o700)
        server = None if dsn else EmbeddedServer(folder, str(Path(folder, "postgres")))
        command = [sys.executable, HERE / "embedder.py", str(request_ms), str(text_ms), str(DIMENSIONS)]
        embedder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if server is not None:
                server.ensure_running()
                with psycopg.connect(server.dsn, autocommit=True) as connection:
                    # A fleet of the peer takes more than the hundred that are usual.
                    connection.execute("alter system set max_connections = 400")
                server.stop()
                server.ensure_running()
            assert embedder.stdout is not None
            url = embedder.stdout.readline().strip()
            yield Stage(server.dsn if server else dsn, url, Path(folder), server)
        finally:
            embedder.kill()
            embedder.communicate()
            if server is not None:
                server.stop(mode="immediate")
