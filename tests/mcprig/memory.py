"""A home whose memory MCP clients use, and the servers of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import psycopg
from mcprig.client import ROOT, Client, Sdk, sdk


class Memory:
    """A home with settings, the clients of its memory, and an HTTP server of it. Ends all of them when left."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.home = home
        self.settings = {"batch_linger_s": 0, "recall_budget_s": 20, "embed_model": "test", **settings}
        (home / "pgvector").mkdir(parents=True)
        (home / "pgvector" / "config.json").write_text(json.dumps(self.settings))
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home)}
        self._clients: list[Client] = []
        self._servers: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for client in self._clients:
            client.kill()
        for server in self._servers:
            server.kill()
            server.wait(10)

    def run(self, *arguments: str, major: int = 2) -> subprocess.CompletedProcess[str]:
        """Run a command of `hermes-pgvector`."""
        return subprocess.run(
            [sdk(major).program, *arguments], capture_output=True, text=True, env=self.environment, timeout=60, cwd="/"
        )

    def stdio(
        self, *themes: str, server: Sdk | None = None, client: Sdk | None = None, era: str = "stateless"
    ) -> Client:
        """A client that starts a server of its own."""
        options = [word for theme in themes for word in ("--theme", theme)]
        command = [(server or sdk(2)).program, "mcp", *options]
        return self.kept(Client(client or sdk(2), era, command=command, env=self.environment))

    def token(self, *themes: str, name: str = "") -> str:
        options = [word for theme in themes for word in ("--theme", theme)]
        made = self.run("mcp", "token", "add", "--name", name, *options)
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def served(self, server: Sdk | None = None, *options: str) -> str:
        """Start an HTTP server and return its URL."""
        command = [(server or sdk(2)).program, "mcp", "--http", "--port", "0", *options]
        started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=self.environment, cwd="/")
        self._servers.append(started)
        for line in started.stderr or ():
            if line.startswith("serving"):
                return line.split()[-1]
        raise AssertionError("the server ended")

    def end_server(self, signal: int) -> int:
        """Send a signal to the HTTP server started last, and return its exit code."""
        self._servers[-1].send_signal(signal)
        return self._servers[-1].wait(30)

    def warnings(self) -> str:
        """What the HTTP server started last, which has ended, wrote to stderr."""
        return self._servers[-1].stderr.read()  # type: ignore[union-attr]

    def http(self, url: str, token: str, client: Sdk | None = None, era: str = "stateless", **headers: str) -> Client:
        """A client of an HTTP server."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = {"Authorization": f"Bearer {token}", **named}
        return self.kept(Client(client or sdk(2), era, url=url, headers=headers))

    def rows(self, columns: str = "content") -> list[Any]:
        """Columns of the entries in the database, in the order of their ids."""
        with psycopg.connect(self.settings["dsn"]) as connection:
            return connection.execute(f"select {columns} from memory_entries order by id".encode()).fetchall()

    def select(self, statement: str) -> list[Any]:
        """The rows of a statement."""
        with psycopg.connect(self.settings["dsn"]) as connection:
            return connection.execute(statement.encode()).fetchall()

    def count(self, statement: str) -> int:
        """The number that a statement returns."""
        number: int = self.select(statement)[0][0]
        return number

    def history(self, columns: str, text: str) -> list[Any]:
        """Columns of the past entries with a text."""
        with psycopg.connect(self.settings["dsn"]) as connection:
            return connection.execute(
                f"select {columns} from memory_history where content = %s".encode(), [text]
            ).fetchall()

    @contextmanager
    def agent(self) -> Iterator[Callable[..., Any]]:
        """An agent of the home, in a process of its own: calls a hook and returns what it returns."""
        command = [sdk(2).python, "-P", ROOT / "tests" / "faultrig" / "hook_agent.py"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=self.environment, cwd="/", **pipes) as process:

            def hook(name: str, *arguments: Any, **named: Any) -> Any:
                process.stdin.write(json.dumps(["", name, arguments, named]) + "\n")
                process.stdin.flush()
                return json.loads(process.stdout.readline())

            yield hook
            process.stdin.close()

    def kept(self, client: Client) -> Client:
        self._clients.append(client)
        return client
