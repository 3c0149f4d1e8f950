"""Compares ways to store a vector that comes after its row: CPU of the server, bloat, VACUUM, time of an exact search.

Rows of 1 kB with vectors of 768 numbers are written in batches of 64, in the schema that users get. Run it on an idle
machine.
"""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from embedding_server import made_from_words, word_vectors
from index_forms import server_cpu_s
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.conninfo import make_conninfo
from rich.console import Console
from rich.table import Table
from servers import throwaway_postgres
from texts import text

from hermes_memory_pgvector.store.schema.migrations import migrate
from pgvector import HalfVector

DIMENSIONS, BATCH, THEME_ROWS, QUESTIONS, TOP = 768, 64, 5000, 21, 10
# Autovacuum would work at times of its own choice. One process builds an index, so that its CPU time is that of one.
SERVER = {"autovacuum": "off", "max_parallel_maintenance_workers": "0", "maintenance_work_mem": "256MB"}

_INSERT = """
insert into conversations (id, agent_identity, session_id, role, content, search, embedding)
values (%s, %s, 'session', 'user', %s, strip(to_tsvector('english', %s)), %s)"""
_UPDATE = """
update conversations t set embedding = r.embedding
from unnest(%(themes)s::text[], %(ids)s::bigint[], %(embeddings)b::halfvec[]) as r (agent_identity, id, embedding)
where t.agent_identity = r.agent_identity and t.id = r.id"""
# The table beside has the columns that an exact search filters by, as the index of the rows has them.
_BESIDE = f"""
drop index conversations_meaning, conversations_exact;
create table beside (agent_identity text, id bigint, session_id text, ts timestamptz, role text,
  embedding halfvec({DIMENSIONS}));
alter table beside alter column embedding set storage plain;
create unique index on beside (agent_identity, id) include (session_id, ts, role, embedding);
create index on beside using hnsw (embedding halfvec_cosine_ops) with (m = 16, ef_construction = 64)"""
_ADD_BESIDE = """
insert into beside select t.agent_identity, t.id, t.session_id, t.ts, t.role, r.embedding
from unnest(%(themes)s::text[], %(ids)s::bigint[], %(embeddings)b::halfvec[]) as r (agent_identity, id, embedding)
join conversations t on t.agent_identity = r.agent_identity and t.id = r.id"""
_DROP_INDEX = "drop index conversations_meaning"
_BUILD_INDEX = """
create index conversations_meaning on conversations using hnsw (embedding halfvec_cosine_ops)
with (m = 16, ef_construction = 64)"""


@dataclass(frozen=True)
class Form:
    """One way: SQL before the rows, whether they have their vectors at once, the statement for late ones, SQL after."""

    before: str = ""
    at_once: bool = False
    late: str = _UPDATE
    after: str = ""
    table: str = "conversations"


FORMS = {
    "at once": Form(at_once=True),
    "update in place": Form(),
    "table beside": Form(before=_BESIDE, late=_ADD_BESIDE, table="beside"),
    "update, index built after": Form(before=_DROP_INDEX, after=_BUILD_INDEX),
}


@dataclass(frozen=True)
class Rows:
    """The rows: texts, vectors, themes. One theme has about THEME_ROWS of them; the others have as many each."""

    texts: list[str]
    vectors: list[np.ndarray]
    themes: list[str]

    @classmethod
    def made(cls, count: int) -> Rows:
        words, themes = word_vectors(DIMENSIONS), max(1, count // THEME_ROWS)
        texts = [text(f"row {number}") for number in range(count)]
        vectors = [made_from_words(each, words) for each in texts]
        return cls(texts, vectors, [f"theme-{number % themes}" for number in range(count)])

    def batches(self) -> Iterator[range]:
        count = len(self.texts)
        return (range(start, min(count, start + BATCH)) for start in range(0, count, BATCH))


def measure(dsn: str, form: Form, rows: Rows) -> dict[str, float]:
    """The figures of one form in the migrated, empty database at `dsn`."""
    count = len(rows.texts)
    with psycopg.connect(dsn, autocommit=True) as connection:
        register_vector(connection)
        for statement in filter(None, form.before.split(";")):
            connection.execute(statement.encode())
        inserted = _cost(connection, lambda: _insert(connection, rows, with_vectors=form.at_once))
        late = _cost(connection, lambda: None if form.at_once else _fill_in(connection, rows, form))
        before, dead = _sizes(connection), _dead(connection)
        exact_before = _exact_ms(connection, form, rows)
        began = time.monotonic()
        connection.execute("vacuum")
        vacuum_s = time.monotonic() - began
        connection.execute("analyze")
        after = _sizes(connection)
        return {
            "insert_cpu_ms_per_row": 1000 * inserted["cpu_s"] / count,
            "late_cpu_ms_per_row": 1000 * late["cpu_s"] / count,
            "cpu_ms_per_row": 1000 * (inserted["cpu_s"] + late["cpu_s"]) / count,
            "wall_ms_per_row": 1000 * (inserted["wall_s"] + late["wall_s"]) / count,
            "dead_rows": dead,
            "table_mb": before["table_mb"],
            "indexes_mb": before["indexes_mb"],
            "vacuum_s": vacuum_s,
            "table_mb_after_vacuum": after["table_mb"],
            "indexes_mb_after_vacuum": after["indexes_mb"],
            "exact_search_ms": exact_before,
            "exact_search_ms_after_vacuum": _exact_ms(connection, form, rows),
        }


def _insert(connection: psycopg.Connection, rows: Rows, *, with_vectors: bool) -> None:
    for batch in rows.batches():
        values = [
            (n, rows.themes[n], rows.texts[n], rows.texts[n], HalfVector(rows.vectors[n]) if with_vectors else None)
            for n in batch
        ]
        with connection.transaction():
            connection.cursor().executemany(_INSERT, values)


def _fill_in(connection: psycopg.Connection, rows: Rows, form: Form) -> None:
    for batch in rows.batches():
        parameters = {
            "themes": [rows.themes[n] for n in batch],
            "ids": list(batch),
            "embeddings": [HalfVector(rows.vectors[n]) for n in batch],
        }
        connection.execute(form.late.encode(), parameters)
    if form.after:
        connection.execute(form.after.encode())


def _cost(connection: psycopg.Connection, work: Callable[[], None]) -> dict[str, float]:
    began, cpu_began = time.monotonic(), server_cpu_s(connection.info.backend_pid)
    work()
    return {"wall_s": time.monotonic() - began, "cpu_s": server_cpu_s(connection.info.backend_pid) - cpu_began}


def _sizes(connection: psycopg.Connection) -> dict[str, float]:
    statement = """
        select sum(pg_table_size(oid)), sum(pg_indexes_size(oid))
        from pg_class where relname in ('conversations', 'beside')
    """
    table, indexes = connection.execute(statement).fetchone() or (0, 0)
    return {"table_mb": float(table) / 1e6, "indexes_mb": float(indexes) / 1e6}


def _dead(connection: psycopg.Connection) -> int:
    connection.execute("select pg_stat_force_next_flush()")
    connection.execute("select pg_stat_clear_snapshot()")
    statement = "select sum(n_dead_tup) from pg_stat_user_tables where relname in ('conversations', 'beside')"
    [dead] = connection.execute(statement).fetchone() or (0,)
    return int(dead)


def _exact_ms(connection: psycopg.Connection, form: Form, rows: Rows) -> float:
    """The median time to compare a question with all rows of one theme."""
    # Adding nothing to the distance keeps the planner from using the vector index.
    statement = f"""
        select id from {form.table} where agent_identity = 'theme-0' and embedding is not null
        order by (embedding <=> %s) + 0 limit {TOP}"""
    took = []
    for number in range(QUESTIONS):
        began = time.perf_counter()
        connection.execute(statement.encode(), [HalfVector(rows.vectors[-1 - number])]).fetchall()
        took.append(1000 * (time.perf_counter() - began))
    return statistics.median(took)


@contextmanager
def _database(dsn: str, name: str) -> Iterator[str]:
    named = sql.Identifier(name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(named))
        migrate(made := make_conninfo(dsn, dbname=name), dimensions=DIMENSIONS)
        yield made
        connection.execute(sql.SQL("drop database {} with (force)").format(named))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench late", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="rows of each form (default 20000)")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this form (default: all)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to this file")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    rows, found = Rows.made(given.rows), {}
    with throwaway_postgres(**SERVER) as server:
        for number, name in enumerate(given.form or FORMS):
            with _database(server.dsn, f"bench_late_{number}") as dsn:
                found[name] = measure(dsn, FORMS[name], rows)
    table = Table("", *found, box=None)
    for figure in next(iter(found.values())):
        table.add_row(figure.replace("_", " "), *(f"{figures[figure]:,.3g}" for figures in found.values()))
    Console().print(table)
    if given.json:
        given.json.write_text(json.dumps({"rows": given.rows, "forms": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
