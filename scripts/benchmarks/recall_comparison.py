"""Times of recall in comparison with the earlier package of the same name (the peer), on the same rows."""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from recall_corpus import COMMON_WORD, THEMES, Array, Corpus, keywords, phrase
from servers import server_process

from hermes_memory_pgvector import runtime
from hermes_memory_pgvector.model import Caller
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.embedded.programs import program
from hermes_memory_pgvector.tools import toolset

TOP = 10
STARTED = time.monotonic()


def log(text: str) -> None:
    """Print a message to stderr with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:5.0f} s] {text}", file=sys.stderr, flush=True)


def copy_to_peer(dsn: str, peer_dsn: str, venv: Path) -> None:
    """Copy our rows into the tables of the peer. Its indexes are built after the copy."""
    folder = next((venv / "lib").glob("python3*/site-packages/hermes_pgvector/migrations"))
    for file in sorted(folder.glob("*.sql")):
        subprocess.run([program("psql"), "-q", "-d", peer_dsn, "-f", file], check=True, stdout=subprocess.DEVNULL)
    with psycopg.connect(dsn) as ours, psycopg.connect(peer_dsn, autocommit=True) as theirs:
        later = theirs.execute(
            "select indexname, indexdef from pg_indexes where tablename = 'conversations' and indexdef !~ 'UNIQUE'"
        ).fetchall()
        for name, _ in later:
            theirs.execute(f"drop index {name}".encode())
        columns = "session_id, agent_identity, role, content, ts"
        with (
            ours.cursor().copy(
                f"copy (select {columns}, embedding::vector from conversations) to stdout (format binary)".encode()
            ) as source,
            theirs.cursor().copy(
                f"copy conversations ({columns}, embedding) from stdin (format binary)".encode()
            ) as sink,
        ):
            for part in source:
                sink.write(part)
        log("the rows of the peer are stored")
        for name, definition in later:
            theirs.execute(definition)
            log(f"index {name} of the peer is built")
        theirs.execute("vacuum analyze conversations")


def compare(
    dsn: str, peer_dsn: str, venv: Path, found: Corpus, questions: int, block: int, changed: dict[str, Any]
) -> None:
    """Ask both packages the same questions about the same rows through `recall_conversation`, and print the times.

    The packages alternate after `block` questions. A large block measures each with warm caches, a block of 1 with
    caches that the other package has just filled.
    """
    with (
        tempfile.TemporaryDirectory(prefix="hpgbench-home") as home,
        embedding_server(found.questions) as url,
        started_runtime(
            Settings(dsn=dsn, embed_url=url, embed_model="m", embed_api="openai", **changed), home
        ) as running,  # type: ignore[arg-type]
        _peer_process(venv, peer_dsn, url, home) as ask_peer,
    ):
        print(f"{'question':<24} {'ours p50/p95 ms':>17}  {'peer p50/p95 ms':>18}  {'p50 ratio':>9}")
        of_theme: dict[str, tuple[list[float], list[float]]] = {}
        for name, theme, wording in _comparisons():
            of_all = of_theme.setdefault(theme or "", ([], []))
            ours, theirs = [], []
            for start in range(0, questions, block):
                asked = [
                    {"query": wording(number + 1000), "limit": TOP, "scope": "current" if theme else "all"}
                    for number in range(start, min(start + block, questions))
                ]
                ours += [_ask_ours(running, theme or "other-0", arguments) for arguments in asked]
                theirs += [_ask_peer(ask_peer, theme or "other-0", arguments) for arguments in asked]
            _print_row(name, ours, theirs)
            of_all[0].extend(ours)
            of_all[1].extend(theirs)
        for theme, (ours, theirs) in of_theme.items():
            if theme:
                _print_row(f"{theme}, all shapes", ours, theirs)


def _ask_ours(running: runtime.Runtime, theme: str, arguments: dict[str, Any]) -> float:
    """Ask our package; returns the milliseconds of the answer."""
    started = time.perf_counter()
    answer = json.loads(toolset.call(running, "recall_conversation", arguments, Caller(theme=theme)))
    took_ms = 1000 * (time.perf_counter() - started)
    if not answer.get("hits") or answer.get("degraded"):
        raise SystemExit(f"ours answered {arguments} with: {str(answer)[:300]}")
    return took_ms


def _ask_peer(ask: Callable[[str, dict[str, Any]], dict[str, Any]], theme: str, arguments: dict[str, Any]) -> float:
    answer = ask(theme, arguments)
    if answer["error"]:
        raise SystemExit(f"the peer answered {arguments} with: {answer['error']}")
    return float(answer["ms"])


def _print_row(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    ratio = np.median(ours) / np.median(theirs)
    print(f"{name:<24} {percentiles(ours):>17}  {percentiles(theirs):>18}  {ratio:>9.2f}", flush=True)


@contextmanager
def started_runtime(settings: Settings, home: str) -> Iterator[runtime.Runtime]:
    """The product with these settings, connected; it stores what is pending at the end."""
    running = runtime.acquire(settings, home)
    try:
        if not running.wait_ready(30):
            raise SystemExit(f"our package does not become ready: {running.status()}")
        yield running
    finally:
        runtime.release(running)


def _comparisons() -> list[tuple[str, str | None, Callable[[int], str]]]:
    shapes = [("eight words", phrase), ("five words", partial(phrase, length=5)), ("keywords", keywords)]
    return [
        *((f"{theme or 'all'}, {name}", theme, wording) for name, wording in shapes for theme in (*THEMES, None)),
        ("common word, all", None, lambda number: COMMON_WORD + "?" * (number % 100)),
    ]


@contextmanager
def _peer_process(
    venv: Path, dsn: str, url: str, home: str
) -> Iterator[Callable[[str, dict[str, Any]], dict[str, Any]]]:
    script = Path(__file__).with_name("peer_process.py")
    environment = {"HERMES_HOME": home, "PATH": os.environ.get("PATH", "")}
    process = subprocess.Popen(
        [venv / "bin/python", "-P", script, dsn, url.removesuffix("/v1"), "hermes_pgvector"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin
    assert process.stdout

    def ask(theme: str, arguments: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps([theme, arguments]), file=process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
        return answer

    try:
        process.stdout.readline()
        yield ask
    finally:
        process.kill()
        process.wait()


@contextmanager
def embedding_server(questions: Array) -> Iterator[str]:
    """The address of an embedding server that answers at once with one of these vectors for each text."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, questions.astype(np.float32))
        file.flush()
        script = Path(__file__).with_name("embedding_server.py")
        with server_process([sys.executable, "-P", script, "0", "0", str(questions.shape[1]), file.name]) as address:
            yield address + "/v1"


def percentiles(times: Sequence[float]) -> str:
    """Median and 95th percentile as text."""
    return f"{np.percentile(times, 50):.1f} / {np.percentile(times, 95):.1f}"
