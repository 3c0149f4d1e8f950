"""Measures what row security costs a recall: the same questions with and without it, in themes of many sizes.

Each question is asked in a database without it and at once in a copy with it, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from recall import QuestionEmbedder, load, scope_of
from recall_comparison import TOP, log
from recall_corpus import Corpus, corpus, phrase
from servers import UNSYNCED, throwaway_postgres

from hermes_memory_pgvector.model import RecallRequest
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.embedded.cluster import AGENT, DATABASE
from hermes_memory_pgvector.store.queries import Kind
from hermes_memory_pgvector.store.schema import migrations, row_security

ROOT = Path(__file__).resolve().parent.parent.parent
# Themes of 0.085 %, 0.85 % and 17 % of the rows, and all.
THEMES = ("smaller", "medium", "sixth", None)
# What a tool recalls, and what is recalled before a turn.
RECALLS: dict[str, Sequence[Kind]] = {"recall_memory": ("entries",), "recall_conversation": ("turns",),
                                      "ambient": ("entries", "turns")}  # fmt: skip
LOGINS = ("all themes", "one theme", "all and persons")
PERSONS = 5000
BOUND = 1.25
# The first questions meet new connections.
UNCOUNTED = 3
# Of so many times each question is asked, the fastest counts: the others waited for something else.
TIMES = 3
# Agents may connect to the other one only; without row security the owner asks as quickly.
PLAIN = "plain"


def grant(connection: psycopg.Connection, login: str, theme: str | None) -> None:
    """Give the agents' role the grants of a kind of login."""
    persons = [f"dm-telegram-{number:016x}" for number in range(PERSONS)]
    patterns = dict(zip(LOGINS, (["*"], [theme or "*"], ["*", *persons]), strict=True))
    connection.execute("delete from memory_theme_grants")
    connection.execute(
        "insert into memory_theme_grants (login, pattern) select %s, unnest(%s::text[])", [AGENT, patterns[login]]
    )
    connection.execute("analyze memory_theme_grants")


@contextmanager
def recaller(dsn: str, found: Corpus) -> Iterator[Recaller]:
    settings = Settings(dsn=dsn)  # type: ignore[arg-type]
    database, embedder = Database(settings, Path(tempfile.gettempdir())), QuestionEmbedder(found)
    try:
        yield Recaller(database, lambda: embedder, settings)
    finally:
        database.close()


def ask(asking: Recaller, kinds: Sequence[Kind], theme: str | None, number: int) -> float:
    """The milliseconds of a recall."""
    request = RecallRequest(query=phrase(number), scope=scope_of(theme), limit=TOP, budget_s=30)
    started = time.perf_counter()
    for answer in asking.recall_each(kinds, request):
        assert not answer.degraded, answer.degraded
    return 1000 * (time.perf_counter() - started)


def fastest(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The shortest time of each side."""
    return min(off for off, _ in pairs), min(on for _, on in pairs)


def measure(plain_dsn: str, dsn: str, agent_dsn: str, found: Corpus, questions: int) -> float:
    """Print the medians and their ratio for each theme, login and recall; returns the highest ratio."""
    worst = 0.0
    print(f"{'theme':<9}{'rows':>9}  {'login':<16}{'recall':<21}{'off, ms':>8}{'on, ms':>8}{'ratio':>7}")
    with psycopg.connect(dsn, autocommit=True) as owner:
        row_security.turn_on(owner)
        for theme, login in product(THEMES, LOGINS):
            if theme is None and login == "one theme":
                continue
            grant(owner, login, theme)
            for name, kinds in RECALLS.items():
                with recaller(plain_dsn, found) as off, recaller(agent_dsn, found) as on:
                    pairs = [
                        fastest([(ask(off, kinds, theme, number), ask(on, kinds, theme, number)) for _ in range(TIMES)])
                        for number in range(questions + UNCOUNTED)
                    ][UNCOUNTED:]
                off_ms, on_ms = (statistics.median(times) for times in zip(*pairs, strict=True))
                ratio = statistics.median(on / off for off, on in pairs)
                worst = max(worst, ratio)
                rows = len(found.rows_of(theme))
                print(f"{theme or '(all)':<9}{rows:>9,}  {login:<16}{name:<21}{off_ms:>8.2f}{on_ms:>8.2f}{ratio:>7.2f}",
                      flush=True)  # fmt: skip
    return worst


def fill(dsn: str, found: Corpus) -> None:
    """Store the rows of the corpus as turns, and again as entries."""
    load(dsn, found)
    migrations.migrate(dsn, runtime_role=AGENT)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "insert into memory_entries (agent_identity, target, content, created_at, updated_at, embedding, search)"
            " select agent_identity, 'memory', content, ts, ts, embedding, search from conversations"
        )
        connection.execute("vacuum analyze memory_entries")
    log("entries are stored")


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench row-security", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000, help="rows in total, of each kind (default 100000)")
    parser.add_argument("--questions", type=int, default=50, help="questions for each line (default 50)")
    asked = parser.parse_args()
    found = corpus(asked.rows, 384, "", ROOT / ".cache" / "bench_vectors.npz")
    megabytes = max(512, asked.rows * 10 // 1000)
    options = {"shared_buffers": f"{megabytes}MB", "maintenance_work_mem": f"{megabytes}MB"}
    with throwaway_postgres((megabytes << 20) * 2, **UNSYNCED, **options) as server:
        fill(server.dsn, found)
        with psycopg.connect(make_conninfo(server.dsn, dbname="postgres"), autocommit=True) as connection:
            connection.execute(f"create database {PLAIN} template {DATABASE}".encode())
        plain_dsn = make_conninfo(server.dsn, dbname=PLAIN)
        worst = measure(plain_dsn, server.dsn, server.agent_dsn, found, asked.questions)
    print(f"highest ratio {worst:.2f}, bound {BOUND}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    main()
