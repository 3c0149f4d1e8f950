"""What an evaluation runs on: a Postgres, an embedding endpoint and memories in child processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from benchmarks.servers import server_process, throwaway_postgres
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.errors import PgvectorError
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.schema.migrations import migrate

from .cases import Case

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "eval"
# The discard port: connections are refused.
NO_ENDPOINT = "http://127.0.0.1:9"
BUNDLED = "bundled"
EMBED_S_MAX = 60.0
SERVED = {"e5": "multilingual-e5-small", "minilm": "all-minilm"}


@dataclass(frozen=True)
class Endpoint:
    """Address of an embedding API without `/v1`, the name of the model, and the length of its vectors.

    Without an address, the memory itself runs the model.
    """

    url: str
    model: str
    dimensions: int = 384


class Environment:
    """A throw-away Postgres, embedding servers and memories in child processes.

    The cache of vectors stays; everything else ends with the `with` block.
    """

    def __enter__(self) -> Environment:
        self._ending = ExitStack()
        with self._ending:
            folder = tempfile.TemporaryDirectory(prefix="hermes-pgvector-eval.")
            self._folder = Path(self._ending.enter_context(folder))
            self._server = self._ending.enter_context(throwaway_postgres())
            self._ending = self._ending.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def endpoint(self, embedder: str) -> Endpoint:
        """The endpoint for `--embedder`: `e5` and `minilm` are started here; `none` refuses connections."""
        if embedder == "none":
            return Endpoint(NO_ENDPOINT, "")
        if embedder in SERVED:
            return Endpoint(self._ending.enter_context(server_process(_server_command(embedder))), SERVED[embedder])
        url, _, model = embedder.partition("#")
        return Endpoint("", model) if url == BUNDLED else Endpoint(url, model, _dimensions(url, model))

    def run(self, cases: Sequence[Case], endpoint: Endpoint, limit: int, peer: Path | None = None) -> dict[str, Any]:
        """Store all cases in our memory, or in the package of the virtual environment `peer`, and ask their questions.

        Returns the `answers` (texts of the rows of each hit, by case and question), `rows`, `stored_s`, `asked_s` and
        `dsn`.
        """
        conversations = [
            {
                "theme": case.theme,
                "turns": list(case.turns()),
                "questions": [(q.text, ("recall_conversation",)) for q in case.questions],
            }
            for case in cases
        ]
        # Sets consist of single texts, which may be shorter than the turns that a memory stores by default.
        short = all(len(texts) == 1 for case in cases for _, texts in case.sessions)
        result = self.run_conversations(conversations, endpoint, limit, peer, short=short)
        return result | {"answers": [[of[0]["contents"] for of in asked] for asked in result["answers"]]}

    def run_conversations(
        self,
        conversations: Sequence[Mapping[str, Any]],
        endpoint: Endpoint,
        limit: int,
        peer: Path | None = None,
        *,
        short: bool = False,
    ) -> dict[str, Any]:
        """As `run`, for conversations as `run_memory.py` takes them; answers are by conversation, question and tool."""
        folder = Path(tempfile.mkdtemp(prefix="peer-" if peer else "ours-", dir=self._folder))
        dsn = self.database(folder.name)
        plan, python = _peer(dsn, endpoint, peer) if peer else _ours(dsn, endpoint)
        if short:
            plan.get("settings", {})["turn_min_chars"] = 0
            plan["environment"]["HERMES_PGVECTOR_TURN_MIN_CHARS"] = "0"
        plan_file, answers = folder / "plan.json", folder / "answers.json"
        plan_file.write_text(
            json.dumps(
                {
                    **plan,
                    "dsn": dsn,
                    "limit": limit,
                    "vectors": endpoint.url != NO_ENDPOINT,
                    "conversations": list(conversations),
                }
            )
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "HERMES_HOME": str(folder)}
        process = subprocess.Popen(
            [python, "-P", HERE / "run_memory.py", plan_file, answers],
            stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd=folder, env=environment | plan["environment"],
        )  # fmt: skip
        try:
            if process.wait():
                sys.exit("the memory could not be evaluated")
        finally:
            process.kill()
            process.wait()
        result: dict[str, Any] = json.loads(answers.read_text())
        return result | {"dsn": dsn}

    def folder(self) -> Path:
        """A new folder for the home of a memory."""
        return Path(tempfile.mkdtemp(prefix="ours-", dir=self._folder))

    def database(self, name: str) -> str:
        """The address of a new database."""
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return make_conninfo(self._server.dsn, dbname=name)


def _dimensions(url: str, model: str) -> int:
    """The length of the vectors that the memory gets from an endpoint."""
    with closing(factory.build(Settings(embed_url=f"{url}/v1", embed_model=model))) as embedder:
        try:
            return len(embedder.embed_query("How long is a vector?", EMBED_S_MAX))
        except PgvectorError as error:
            sys.exit(f"--embedder {url}#{model} cannot be used: {error}")


def _ours(dsn: str, endpoint: Endpoint) -> tuple[dict[str, Any], Path]:
    migrate(dsn, dimensions=endpoint.dimensions)
    settings = {"DSN": dsn, "EMBED_URL": endpoint.url and f"{endpoint.url}/v1", "EMBED_MODEL": endpoint.model}
    environment = {f"HERMES_PGVECTOR_{name}": value for name, value in settings.items()}
    return {"provider": "hermes_memory_pgvector.provider", "environment": environment}, Path(sys.executable)


def _peer(dsn: str, endpoint: Endpoint, place: Path) -> tuple[dict[str, Any], Path]:
    python = place.resolve() / "bin" / "python"
    command = [python, "-m", "hermes_pgvector", "migrate", "--admin-dsn", dsn]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    settings = {"dsn": dsn, "embed_url": f"{endpoint.url}/768", "embed_model": endpoint.model}
    # A queue that holds all turns: what the package drops would be missing from the answers.
    settings |= {"embed_protocol": "openai", "write_queue_maxsize": 100_000}
    return {"provider": "hermes_pgvector", "settings": settings, "environment": {}}, python


def _server_command(model: str) -> list[str | Path]:
    CACHE.mkdir(parents=True, exist_ok=True)
    return [sys.executable, "-P", HERE / "embedding_server.py", model, CACHE / f"{model}.sqlite"]
