"""A home whose memory a page shows, and the servers of it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint, vector
from mcprig.client import sdk
from starlette.testclient import TestClient

from hermes_memory_pgvector.admin.web.admission import Admission
from hermes_memory_pgvector.admin.web.app import application
from hermes_memory_pgvector.admin.web.reading import Reader
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.text import tokenizer


class Site:
    """A home with rows that tests make, and pages of it. Ends the servers when left."""

    def __init__(self, home: Path, dsn: str, embed_url: str) -> None:
        self.home, self.dsn = home, dsn
        (home / "pgvector").mkdir(parents=True)
        (home / "pgvector" / "config.json").write_text(json.dumps({"embed_url": embed_url, "embed_model": "test"}))
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(home), "HERMES_HOME": str(home), "HERMES_PGVECTOR_DSN": dsn,
        }  # fmt: skip
        self.servers: list[subprocess.Popen[str]] = []
        self.readers: list[Reader] = []
        self.sql("insert into hermes_pgvector_settings (name, value) values ('embedding_model', 'test')")

    def entry(self, content: str, theme: str = "ops", **columns: object) -> int:
        return self._insert(
            "memory_entries", content, {"agent_identity": theme, "target": "memory", "content": content, **columns}
        )

    def turn(self, content: str, theme: str = "ops", session: str = "s1", role: str = "user", **columns: object) -> int:
        named = {"agent_identity": theme, "session_id": session, "role": role, "content": content, **columns}
        return self._insert("conversations", content, named)

    def _insert(self, table: str, content: str, columns: dict[str, object]) -> int:
        given = {**columns, "embedding": json.dumps(vector(content))}
        statement = (
            f"insert into {table} ({', '.join(given)}, search) "
            f"values ({', '.join('%s' for _ in given)}, to_tsvector('english', %s)) returning id"
        )
        return int(self.sql(statement, *given.values(), tokenizer.document(content))[0][0])

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def page(self, *, persons: bool = False, token: str = "", hosts: tuple[str, ...] = ()) -> TestClient:
        """A client of the application in this process, which reads the settings of the home."""
        settings = load(self.home)
        reader = Reader(settings, self.home, persons=persons)
        self.readers.append(reader)
        return TestClient(application(settings, self.home, reader, Admission(token, hosts)), "http://127.0.0.1:8766")

    def served(self, *options: str, **environment: str) -> str:
        """Start a server in a process of its own and return its address."""
        server = subprocess.Popen(
            [sdk(2).program, "serve", "--port", "0", *options],
            stderr=subprocess.PIPE, text=True, env={**self.environment, **environment}, cwd="/",
        )  # fmt: skip
        self.servers.append(server)
        for line in server.stderr or ():
            if line.startswith("serving"):
                return line.split()[4].rstrip("/")
        raise AssertionError("the server ended")

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        for server in self.servers:
            server.kill()
            server.communicate(timeout=10)


@pytest.fixture
def site(database: str, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    made = Site(tmp_path / "home", database, endpoint.url)
    yield made
    made.close()
