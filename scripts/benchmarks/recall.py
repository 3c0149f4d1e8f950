"""Measures recall in themes of many sizes: agreement with exact search, rows returned, latency.

Run it on an idle machine. On a busy one only ratios of latencies are meaningful.
"""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import argparse
import random
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from psycopg.conninfo import make_conninfo
from recall_comparison import TOP, compare, copy_to_peer, log, percentiles
from recall_corpus import TEXTS, THEMES, Corpus, corpus, phrase, texts
from servers import UNSYNCED, throwaway_postgres

from hermes_memory_pgvector.model import RecallRequest, Scope, Vector
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.schema import migrations
from hermes_memory_pgvector.text import tokenizer
from pgvector import HalfVector

ROOT = Path(__file__).resolve().parent.parent.parent
DEEP, SESSION_ROWS = 50, 20
# A row this close to the tenth cosine counts as found, because the database rounds vectors.
EQUAL = 2e-4
COLD_QUESTIONS = 10
# A prefix for a question's number, written in letters. No row holds such a word, so only vectors find rows.
MARK, LETTERS = "zqzq", "abcdefghij"
DIGITS = str.maketrans(LETTERS, "0123456789")


class QuestionEmbedder:
    """Embedder that returns the vector of a numbered question, else one chosen by the hash of the text."""

    model, dimensions = "bench", 0

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
    """Migrate the database, copy the rows, and build the indexes afterwards."""
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
        log("texts are stored")
        _copy(connection, found)
        connection.execute(
            f"""insert into conversations (agent_identity, session_id, role, content, ts, embedding, search)
            select theme, 's' || r.number / {SESSION_ROWS}, case when r.number % 2 = 0 then 'user' else 'assistant' end,
                   content || ' ref' || r.number, timestamptz '2024-01-01' + r.number * interval '1 minute',
                   embedding, search
            from bench_rows r join bench_texts t on t.number = r.number % {len(pool)} order by r.number""".encode()
        )
        connection.execute("drop table bench_texts, bench_rows")
        log("rows are stored")
        for name, definition in later:
            connection.execute(definition)
            log(f"index {name} is built")
        connection.execute("vacuum analyze conversations")


def _copy(connection: psycopg.Connection[Any], found: Corpus) -> None:
    from pgvector.psycopg import register_vector

    register_vector(connection)
    with connection.cursor().copy("copy bench_rows from stdin (format binary)") as copy:
        copy.set_types(["int4", "text", "halfvec"])
        for number, theme in enumerate(found.themes):
            copy.write_row((number, theme, HalfVector(found.vectors[number])))
            if number % 100_000 == 99_999:
                log(f"{number + 1:,} rows copied")


def scope_of(theme: str | None) -> Scope:
    return Scope(theme or "bench", None if theme is None else (theme,))


def check_recall(dsn: str, found: Corpus, questions: int, changed: dict[str, Any]) -> float:
    """Print by theme: recall@10 against exact search, rows returned, latency on new and on used connections.

    Returns the lowest recall of a theme, or 0 when a theme returned fewer rows than it has and were requested.
    """
    worst = 1.0
    settings = Settings(dsn=dsn, recall_limit_max=DEEP, **changed)  # type: ignore[arg-type]
    embedder = QuestionEmbedder(found)
    print(
        f"{'theme':<11} {'rows':>9}  {'recall@10':>9} {'min':>6} {'rows':>4}  "
        f"{'cold p50/p95':>14}  {'warm p50/p95 ms':>17}  plan"
    )
    for theme in (*THEMES, None):
        rows = found.rows_of(theme)
        shares, counts, later, plans = [], [], [], {}
        with recaller(settings, embedder) as asking:
            for number in range(questions):
                recall, _ = timed(asking, theme, mark(number), DEEP)
                best = found.nearest(number, rows, TOP)
                nearest = sorted((hit.similarity or -1 for hit in recall.hits), reverse=True)[:TOP]
                shares.append(sum(cosine >= best[-1][0] - EQUAL for cosine in nearest) / len(best))
                counts.append(len(recall.hits))
                plans[recall.explanation.plan] = plans.get(recall.explanation.plan, 0) + 1
                assert not recall.degraded, recall.degraded
            for number in range(questions):
                later.append(timed(asking, theme, phrase(number), TOP)[1])
        complete = min(counts) >= min(DEEP, len(rows))
        worst = min(worst, float(np.mean(shares)) if complete else 0.0)
        first = []
        for number in range(COLD_QUESTIONS):
            with recaller(settings, embedder) as asking:
                first.append(timed(asking, theme, phrase(number), TOP)[1])
        print(
            f"{theme or '(all)':<11} {len(rows):>9,}  {np.mean(shares):>9.4f} {min(shares):>6.2f} {min(counts):>4}  "
            f"{percentiles(first):>14}  {percentiles(later):>17}  {plans}", flush=True,
        )  # fmt: skip
    return worst


@contextmanager
def recaller(settings: Settings, embedder: QuestionEmbedder) -> Iterator[Recaller]:
    """A recaller with connections of its own, which are closed at the end."""
    database = Database(settings, Path(tempfile.gettempdir()))
    try:
        yield Recaller(database, lambda: embedder, settings)
    finally:
        database.close()


def timed(asking: Recaller, theme: str | None, query: str, limit: int) -> tuple[Any, float]:
    """A recall of turns and its milliseconds."""
    started = time.perf_counter()
    recall = asking.recall("turns", RecallRequest(query=query, scope=scope_of(theme), limit=limit, budget_s=30))
    return recall, 1000 * (time.perf_counter() - started)


def mark(number: int) -> str:
    """A question that only vector search can answer, for `QuestionEmbedder`."""
    return MARK + str(number).translate(str.maketrans("0123456789", LETTERS))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench recall", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in total (default 100000)")
    parser.add_argument(
        "--dimensions", type=int, help="dimensions of the vectors (default 384; 768 with --peer, which needs that)"
    )
    parser.add_argument("--questions", type=int, default=100, help="questions for each theme (default 100)")
    parser.add_argument(
        "--least", type=float, default=0.0, help="exit with 1 when recall@10 of a theme is lower (default 0)"
    )
    parser.add_argument(
        "--vectors",
        default="",
        metavar="NPZ",
        help="arrays `passages` and `queries` to mix (default: from the bundled model)",
    )
    parser.add_argument(
        "--peer", type=Path, metavar="VENV", help="compare with the earlier package in this virtual environment"
    )
    parser.add_argument("--only-compare", action="store_true", help="with --peer: skip the measurement of recall")
    parser.add_argument(
        "--block",
        type=int,
        default=20,
        help="with --peer: questions to one package before those to the other (default 20)",
    )
    parser.add_argument(
        "--dsn", default="", help="an empty database, or one filled by an earlier run (default: a throw-away Postgres)"
    )
    parser.add_argument("--peer-dsn", default="", help="the same for the peer")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of our package; repeatable"
    )
    asked = parser.parse_args()
    if asked.block < 1:
        parser.error(f"--block must be at least 1, not {asked.block}")
    return asked


def measure(asked: argparse.Namespace, dsn: str, peer_dsn: str) -> None:
    """Run what the arguments select. Raises SystemExit when recall of a theme is below `--least`."""
    dimensions = asked.dimensions or (768 if asked.peer else 384)
    found = corpus(asked.rows, dimensions, asked.vectors, ROOT / ".cache" / "bench_vectors.npz")
    changed = dict(pair.split("=", 1) for pair in asked.set)
    log(f"{asked.rows:,} rows of {dimensions} dimensions")
    if not _filled(dsn):
        load(dsn, found)
    if not (asked.peer and asked.only_compare):
        worst = check_recall(dsn, found, asked.questions, changed)
        if worst < asked.least:
            raise SystemExit(f"the lowest recall@10 of a theme is {worst:.4f}, below {asked.least}")
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
    with throwaway_postgres(
        (megabytes << 20) * 2, **UNSYNCED, **options, max_parallel_maintenance_workers="2"
    ) as server:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute("create database peer")
        measure(asked, server.dsn, make_conninfo(server.dsn, dbname="peer"))


if __name__ == "__main__":
    main()
