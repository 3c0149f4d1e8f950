"""Recall at size, through the product's own code: share of what exact search finds, rows, latency; the rival beside it.

Leave the machine alone meanwhile. Figures of a busy machine are good for ratios only.
"""

# ruff: noqa: S608  (the statements are put together from constants)
from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from recall_corpus import COMMON_WORD, DEEDS, TEXTS, THEMES, TOPICS, Array, Corpus, corpus, texts
from throwaway import postgres, programs

from hermes_memory_pgvector import runtime
from hermes_memory_pgvector.model import Caller, RecallRequest, Scope, Vector
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.schema import migrations
from hermes_memory_pgvector.text import tokenizer
from hermes_memory_pgvector.tools import toolset
from pgvector import HalfVector

ROOT = Path(__file__).resolve().parent.parent.parent
TOP, DEEP, SESSION_ROWS = 10, 50, 20
# A cosine this near to the tenth is as good: the database rounds.
EQUAL = 2e-4
FIRSTS = 10
# The number of a question that is to be answered by meaning alone, as a word that no row holds.
MARK, LETTERS = "zqzq", "abcdefghij"
DIGITS = str.maketrans(LETTERS, "0123456789")
STARTED = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:5.0f} s] {text}", file=sys.stderr, flush=True)


class Asked:
    """An embedder that gives each question one of the real vectors, by its number or by its text."""

    model, dimensions, seconds_per_text = "bench", 0, 1e-4

    def __init__(self, found: Corpus) -> None:
        self.questions = found.questions.astype(np.float32)
        self.dimensions = self.questions.shape[1]

    def embed_query(self, text: str, timeout_s: float) -> Vector:  # noqa: ARG002
        marked = text.rsplit(MARK, 1)
        number = int(marked[1].translate(DIGITS)) if len(marked) > 1 else zlib.crc32(text.encode())
        return self.questions[number % len(self.questions)].tolist()  # type: ignore[no-any-return]

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        return [self.embed_query(text, timeout_s) for text in texts]

    def close(self) -> None:
        pass


def load(dsn: str, found: Corpus) -> None:
    """The rows by COPY, then each index once."""
    dimensions = found.vectors.shape[1]
    migrations.migrate(dsn, dimensions=dimensions)
    with psycopg.connect(dsn, autocommit=True) as connection:
        later = connection.execute(
            "select indexname, indexdef from pg_indexes where tablename = 'conversations'"
            " and indexdef !~ 'UNIQUE' order by indexdef ~ 'hnsw'"
        ).fetchall()
        for name, _ in later:
            connection.execute(f"drop index {name}".encode())
        pool = texts(min(TEXTS, len(found.themes)), random.Random(2))
        connection.execute("create table bench_texts (number int primary key, content text, search tsvector)")
        connection.execute(
            f"create table bench_rows (number int, theme text, embedding halfvec({dimensions}))".encode()
        )
        with connection.cursor() as cursor:
            cursor.executemany(
                "insert into bench_texts values (%s, %s, to_tsvector('english', %s))",
                [(n, text, tokenizer.document(text)) for n, text in enumerate(pool)],
            )
        say("texts are there")
        _copy(connection, found)
        connection.execute(
            f"""insert into conversations (agent_identity, session_id, role, content, ts, embedding, search)
            select theme, 's' || r.number / {SESSION_ROWS}, case when r.number % 2 = 0 then 'user' else 'assistant' end,
                   content || ' ref' || r.number, timestamptz '2024-01-01' + r.number * interval '1 minute',
                   embedding, search
            from bench_rows r join bench_texts t on t.number = r.number % {len(pool)} order by r.number""".encode()
        )
        connection.execute("drop table bench_texts, bench_rows")
        say("rows are there")
        for name, definition in later:
            connection.execute(definition)
            say(f"index {name}")
        connection.execute("vacuum analyze conversations")


def _copy(connection: psycopg.Connection[Any], found: Corpus) -> None:
    from pgvector.psycopg import register_vector

    register_vector(connection)
    with connection.cursor().copy("copy bench_rows from stdin (format binary)") as copy:
        copy.set_types(["int4", "text", "halfvec"])
        for number, theme in enumerate(found.themes):
            copy.write_row((number, theme, HalfVector(found.vectors[number])))
            if number % 100_000 == 99_999:
                say(f"{number + 1:,} rows copied")


def scope_of(theme: str | None) -> Scope:
    return Scope(theme or "bench", None if theme is None else (theme,))


def check_recall(dsn: str, found: Corpus, questions: int, changed: dict[str, Any]) -> float:
    """Print recall against brute force, rows returned, and latency on new and on used connections, by theme.

    Returns the recall of the worst theme, 0 when one got fewer rows than it has and were asked for.
    """
    worst = 1.0
    settings = Settings(dsn=dsn, recall_limit_max=DEEP, **changed)  # type: ignore[arg-type]
    embedder = Asked(found)
    print(
        f"{'theme':<11} {'rows':>9}  {'recall@10':>9} {'least':>6} {'rows':>4}  "
        f"{'first p50/p95':>14}  {'later p50/p95 ms':>17}  plan"
    )
    for theme in (*THEMES, None):
        rows = found.rows_of(theme)
        shares, counts, later, plans = [], [], [], {}
        with _recaller(settings, embedder) as recaller:
            for number in range(questions):
                recall, _ = _timed(recaller, theme, _mark(number), DEEP)
                best = found.nearest(number, rows, TOP)
                nearest = sorted((hit.similarity or -1 for hit in recall.hits), reverse=True)[:TOP]
                shares.append(sum(cosine >= best[-1][0] - EQUAL for cosine in nearest) / len(best))
                counts.append(len(recall.hits))
                plans[recall.explanation.plan] = plans.get(recall.explanation.plan, 0) + 1
                assert not recall.degraded, recall.degraded
            for number in range(questions):
                later.append(_timed(recaller, theme, _wording(number), TOP)[1])
        complete = min(counts) >= min(DEEP, len(rows))
        worst = min(worst, float(np.mean(shares)) if complete else 0.0)
        first = []
        for number in range(FIRSTS):
            with _recaller(settings, embedder) as recaller:
                first.append(_timed(recaller, theme, _wording(number), TOP)[1])
        print(
            f"{theme or '(all)':<11} {len(rows):>9,}  {np.mean(shares):>9.4f} {min(shares):>6.2f} {min(counts):>4}  "
            f"{_percentiles(first):>14}  {_percentiles(later):>17}  {plans}", flush=True,
        )  # fmt: skip
    return worst


@contextmanager
def _recaller(settings: Settings, embedder: Asked) -> Iterator[Recaller]:
    database = Database(settings, Path(tempfile.gettempdir()))
    try:
        yield Recaller(database, lambda: embedder, settings)
    finally:
        database.close()


def _timed(recaller: Recaller, theme: str | None, query: str, limit: int) -> tuple[Any, float]:
    started = time.perf_counter()
    recall = recaller.recall("turns", RecallRequest(query=query, scope=scope_of(theme), limit=limit, budget_s=30))
    return recall, 1000 * (time.perf_counter() - started)


def _wording(number: int, length: int = 8) -> str:
    """A question of some words of the corpus, as they stand one behind the other."""
    chance = random.Random(number)
    words = texts(1, chance)[0].split()[4:]
    at = chance.randrange(len(words) - length)
    return " ".join(words[at : at + length])


def _keywords(number: int) -> str:
    """A question as a model puts it to a tool: two or three words that matter."""
    chance = random.Random(number)
    topic = chance.choice(TOPICS).split()[-2:]
    return " ".join([*topic, chance.choice(DEEDS).split()[0]][: chance.choice((2, 3))])


def _mark(number: int) -> str:
    return MARK + str(number).translate(str.maketrans("0123456789", LETTERS))


def _percentiles(times: Sequence[float]) -> str:
    return f"{np.percentile(times, 50):.1f} / {np.percentile(times, 95):.1f}"


def compare(
    dsn: str, peer_dsn: str, venv: Path, found: Corpus, questions: int, block: int, changed: dict[str, Any]
) -> None:
    """The same questions to the same rows, through `recall_conversation` of both, in turns of `block` questions.

    With several in a block each is measured as it is when it is busy, with one among the caches that the other has
    just filled.
    """
    with (
        tempfile.TemporaryDirectory(prefix="hpgbench-home") as home,
        _endpoint(found.questions) as url,
        _runtime(Settings(dsn=dsn, embed_url=url, embed_model="m", embed_api="openai", **changed), home) as running,  # type: ignore[arg-type]
        _peer(venv, peer_dsn, url, home) as ask_peer,
    ):
        print(f"{'question':<24} {'ours p50/p95 ms':>17}  {'theirs p50/p95 ms':>18}  {'p50 ratio':>9}")
        of_theme: dict[str, tuple[list[float], list[float]]] = {}
        for name, theme, wording in _comparisons():
            of_all = of_theme.setdefault(theme or "", ([], []))
            ours, theirs = [], []
            for start in range(0, questions, block):
                turn = [
                    {"query": wording(number + 1000), "limit": TOP, "scope": "current" if theme else "all"}
                    for number in range(start, min(start + block, questions))
                ]
                ours += [_ask_ours(running, theme or "other-0", arguments) for arguments in turn]
                theirs += [_ask_theirs(ask_peer, theme or "other-0", arguments) for arguments in turn]
            _print_beside(name, ours, theirs)
            of_all[0].extend(ours)
            of_all[1].extend(theirs)
        for theme, (ours, theirs) in of_theme.items():
            if theme:
                _print_beside(f"{theme}, all of these", ours, theirs)


def _ask_ours(running: runtime.Runtime, theme: str, arguments: dict[str, Any]) -> float:
    """How many milliseconds the answer took."""
    started = time.perf_counter()
    answer = json.loads(toolset.call(running, "recall_conversation", arguments, Caller(theme=theme)))
    took_ms = 1000 * (time.perf_counter() - started)
    if not answer.get("hits") or answer.get("degraded"):
        raise SystemExit(f"ours to {arguments}: {str(answer)[:300]}")
    return took_ms


def _ask_theirs(ask: Callable[[str, dict[str, Any]], dict[str, Any]], theme: str, arguments: dict[str, Any]) -> float:
    answer = ask(theme, arguments)
    if answer["error"]:
        raise SystemExit(f"theirs to {arguments}: {answer['error']}")
    return float(answer["ms"])


def _print_beside(name: str, ours: Sequence[float], theirs: Sequence[float]) -> None:
    ratio = np.median(ours) / np.median(theirs)
    print(f"{name:<24} {_percentiles(ours):>17}  {_percentiles(theirs):>18}  {ratio:>9.2f}", flush=True)


@contextmanager
def _runtime(settings: Settings, home: str) -> Iterator[runtime.Runtime]:
    running = runtime.acquire(settings, home)
    try:
        if not running.wait_ready(30):
            raise SystemExit(f"ours does not get ready: {running.writer.health.problem}")
        yield running
    finally:
        runtime.release(running)


def _comparisons() -> list[tuple[str, str | None, Callable[[int], str]]]:
    shapes = [("eight words", _wording), ("five words", partial(_wording, length=5)), ("keywords", _keywords)]
    return [
        *((f"{theme or 'all'}, {name}", theme, wording) for name, wording in shapes for theme in (*THEMES, None)),
        ("common word, all", None, lambda number: COMMON_WORD + "?" * (number % 100)),
    ]


@contextmanager
def _peer(venv: Path, dsn: str, url: str, home: str) -> Iterator[Callable[[str, dict[str, Any]], dict[str, Any]]]:
    script = Path(__file__).with_name("recall_of_peer.py")
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
def _endpoint(questions: Array) -> Iterator[str]:
    """The address of an embedder that answers at once, in a process of its own, as any is."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file, questions.astype(np.float32))
        file.flush()
        script = Path(__file__).with_name("embedder.py")
        process = subprocess.Popen(
            [sys.executable, "-P", script, "0", "0", str(questions.shape[1]), file.name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout
        try:
            yield process.stdout.readline().strip() + "/v1"
        finally:
            process.kill()
            process.wait()


def copy_to_peer(dsn: str, peer_dsn: str, venv: Path) -> None:
    """Our rows into the rival's tables; its indexes are made once, afterwards."""
    folder = next((venv / "lib").glob("python3*/site-packages/hermes_pgvector/migrations"))
    for file in sorted(folder.glob("*.sql")):
        subprocess.run([programs() / "psql", "-q", "-d", peer_dsn, "-f", file], check=True, stdout=subprocess.DEVNULL)
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
        say("the peer's rows are there")
        for name, definition in later:
            theirs.execute(definition)
            say(f"index {name}")
        theirs.execute("vacuum analyze conversations")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench recall", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in all (100000)")
    parser.add_argument(
        "--dimensions", type=int, help="width of the vectors: 384, with --peer 768, which is all it takes"
    )
    parser.add_argument("--questions", type=int, default=100, help="questions a theme (100)")
    parser.add_argument("--least", type=float, default=0.0, help="end with 1 when a theme's recall@10 is below it (0)")
    parser.add_argument(
        "--vectors", default="", metavar="NPZ", help="real `passages` and `queries` to mix, else our own"
    )
    parser.add_argument("--peer", type=Path, metavar="VENV", help="compare with the rival that is installed there")
    parser.add_argument("--only-compare", action="store_true", help="with --peer: leave the table of recall out")
    parser.add_argument(
        "--block", type=int, default=20, help="with --peer: so many questions to one, then as many to the other (20)"
    )
    parser.add_argument("--dsn", default="", help="an empty database to use, or with --keep one that was filled before")
    parser.add_argument("--peer-dsn", default="", help="the same for the rival")
    parser.add_argument("--keep", action="store_true", help="with --dsn: fill when empty, and leave the rows there")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of ours")
    asked = parser.parse_args()
    if asked.block < 1:
        parser.error(f"--block is {asked.block}; it must be at least 1")
    return asked


def measure(asked: argparse.Namespace, dsn: str, peer_dsn: str) -> None:
    """Everything that was asked for. Ends the program with 1 when some theme's recall is below the least."""
    dimensions = asked.dimensions or (768 if asked.peer else 384)
    found = corpus(asked.rows, dimensions, asked.vectors, ROOT / ".cache" / "bench_vectors.npz")
    changed = dict(pair.split("=", 1) for pair in asked.set)
    say(f"{asked.rows:,} rows of {dimensions} numbers to store")
    if not _filled(dsn):
        load(dsn, found)
    if not (asked.peer and asked.only_compare):
        worst = check_recall(dsn, found, asked.questions, changed)
        if worst < asked.least:
            raise SystemExit(f"recall@10 of the worst theme is {worst:.4f}, wanted {asked.least}")
    if asked.peer:
        if not _filled(peer_dsn):
            copy_to_peer(dsn, peer_dsn, asked.peer)
        compare(dsn, peer_dsn, asked.peer, found, asked.questions, asked.block, changed)


def _filled(dsn: str) -> bool:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select to_regclass('conversations') is not null").fetchone()
        return bool(row and row[0] and connection.execute("select from conversations limit 1").fetchone() is not None)


def main() -> None:
    asked = arguments()
    if asked.dsn:
        measure(asked, asked.dsn, asked.peer_dsn)
        return
    megabytes = max(512, asked.rows * 6 // 1000)
    options = {"shared_buffers": f"{megabytes}MB", "maintenance_work_mem": f"{megabytes}MB"}
    with postgres((megabytes << 20) * 2, **options, max_parallel_maintenance_workers="2") as dsn:
        peer_dsn = dsn.replace("dbname=postgres", "dbname=peer")
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("create database peer")
        measure(asked, dsn, peer_dsn)


if __name__ == "__main__":
    main()
