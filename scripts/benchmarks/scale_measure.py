"""Measurements on a loaded server: sizes, recall, inserts by the writer, deleted rows and VACUUM, bytes of records."""

# ruff: noqa: S608  (SQL is built from constants)
from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
from psycopg.rows import dict_row
from recall import QuestionEmbedder, mark, recaller, timed
from recall_comparison import embedding_server, log, started_runtime
from recall_corpus import Array, Corpus, phrase
from scale_corpus import BLOCK_ROWS, TOP, Block, ScaleCorpus, theme_name
from scale_load import measured
from server_usage import server_cpu_ms

from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import theme_index, upkeep
from hermes_memory_pgvector.store.schema.preflight import set_timeouts
from hermes_memory_pgvector.text.theme_names import RESERVED_PATTERN

Figures = dict[str, Any]

# Half precision in the database rounds a cosine by less.
EQUAL = 2e-4
DEEP = 50
INSERT_S_MAX = 1800
RECORDS = 200_000
RECORD_CHARS = 150
_RELATIONS = """
select c.relname as name, coalesce(t.relname, c.relname) as of,
       pg_relation_size(c.oid) + coalesce(pg_relation_size(nullif(c.reltoastrelid, 0)), 0) as bytes
from pg_class c left join pg_index i on i.indexrelid = c.oid left join pg_class t on t.oid = i.indrelid
where coalesce(t.relname, c.relname) in ('conversations', 'memory_events') and c.relkind in ('r', 'i')
order by bytes desc"""
_RECORDS = {
    "memory_history": f"""
insert into memory_history (agent_identity, entry_id, target, content, created_at, updated_at, how, session_id)
select 'theme-' || n %% 100, n, 'memory', repeat('x', {RECORD_CHARS}), now(), now(), 'replaced', gen_random_uuid()::text
from generate_series(1, %s) as n""",
    "memory_tombstones": """
insert into memory_tombstones
select 'theme-' || n %% 100, gen_random_uuid()::text, 'memory', content_key(n::text), now()
from generate_series(1, %s) as n""",
    "memory_events": """
insert into memory_events select 'theme-' || n %% 100, gen_random_uuid(), now() from generate_series(1, %s) as n""",
}


def sizes(dsn: str) -> list[Figures]:
    """The tables and indexes of turns and of the ledger with their bytes, the largest first."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        return connection.execute(_RELATIONS).fetchall()


def theme_sizes(dsn: str) -> Counter[str]:
    """The rows of each theme, the largest first."""
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select agent_identity, count(*) from conversations group by 1 order by 2 desc")
        return Counter(dict(found.fetchall()))


def count_words(dsn: str) -> None:
    """Count common words until nothing is due, as agents do in the background."""
    settings = Settings(dsn=dsn)  # type: ignore[arg-type]
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        while upkeep.count_words(connection, settings.word_candidates_max, RESERVED_PATTERN):
            pass


def recalls(
    dsn: str, corpus: ScaleCorpus, tenth_best: dict[int | None, Array], sizes: Counter[str], exact_rows_max: int
) -> list[Figures]:
    """For each theme of `tenth_best`: recall@10 against comparing all rows, plans, latency and CPU of a recall."""
    asked, questions = corpus.widened_questions(), len(corpus.questions)
    embedder = QuestionEmbedder(Corpus(asked, asked, []))
    settings = Settings(dsn=dsn, recall_limit_max=DEEP, exact_rows_max=exact_rows_max)  # type: ignore[arg-type]
    found = []
    for theme, tenth in tenth_best.items():
        name = None if theme is None else theme_name(theme)
        rows = sizes[name] if name else corpus.rows
        shares, plans, times, degraded = [], Counter[str](), [], Counter[str]()
        with recaller(settings, embedder) as asking:
            for number in range(questions):
                recall, _ = timed(asking, name, mark(number), DEEP)
                cosines = [hit.similarity or -1 for hit in recall.texts]
                nearest = sum(cosine >= tenth[number] - EQUAL for cosine in cosines)
                shares.append(min(1.0, nearest / min(TOP, rows)))
                plans[recall.explanation.plan] += 1
                degraded.update(recall.degraded)
            cpu_ms = server_cpu_ms(dsn)
            for number in range(questions):
                times.append(timed(asking, name, phrase(number), TOP)[1])
            cpu_ms = server_cpu_ms(dsn) - cpu_ms
        row = {
            "theme": name or "all", "rows": rows, "recall": float(np.mean(shares)),
            "worst": float(min(shares)), "plans": dict(plans), "degraded": dict(degraded),
            "cpu_ms": round(cpu_ms / questions, 1), "p50_ms": round(float(np.percentile(times, 50)), 1),
            "p99_ms": round(float(np.percentile(times, 99)), 1),
        }  # fmt: skip
        found.append(row)
        log(str(row))
    return found


def tune(dsn: str, rows_min: int) -> list[Figures]:
    """Build the indexes that `hermes-pgvector tune` proposes; returns what each took."""
    built = []
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as connection:
        set_timeouts(connection)
        for index in theme_index.plan(connection, rows_min=rows_min, indexes_max=24):
            with measured(dsn, f"tune {index.theme} of {index.rows:,} rows") as step:
                theme_index.apply(connection, index)
            # None of an index that is dropped, because an earlier run did not finish it.
            row = connection.execute("select pg_relation_size(to_regclass(%s)) as bytes", [index.name]).fetchone()
            built.append({**step, "rows": index.rows, "bytes": row and row["bytes"]})
    return built


def inserts(dsn: str, corpus: ScaleCorpus, turns: int) -> list[Figures]:
    """Store turns through the outbox and the writer of the product, right after a checkpoint; what a row takes.

    Once as Postgres is, and once with compressed WAL: after a checkpoint a page is written whole when it first changes.
    """
    more = replace(corpus, rows=corpus.rows + 2 * BLOCK_ROWS)
    block = more.block(corpus.rows // BLOCK_ROWS * BLOCK_ROWS + BLOCK_ROWS)
    settings = {"embed_model": QuestionEmbedder.model, "embed_api": "openai", "embed_wait_s": 60}
    found = []
    with (
        tempfile.TemporaryDirectory(prefix="hpgbench-home") as home,
        embedding_server(block.vectors) as url,
        started_runtime(Settings(dsn=dsn, embed_url=url, **settings), home) as running,  # type: ignore[arg-type]
        psycopg.connect(dsn, autocommit=True) as connection,
    ):
        for number, compression in enumerate(("off", "on")):
            connection.execute(f"alter system set wal_compression = {compression}".encode())
            connection.execute("select pg_reload_conf()")
            events = _turns(block, corpus.text_pool, number * turns, turns)
            row = {"wal_compression": compression, **_inserted(dsn, connection, running, events)}
            log(f"inserts: {row}")
            found.append(row)
    return found


def _turns(block: Block, pool: list[str], first: int, count: int) -> list[TurnTaken]:
    at, chance = datetime.now(UTC), random.Random(first)
    return [
        TurnTaken(
            theme=theme_name(int(block.themes[number])), session_id=f"scale-{block.themes[number]}",
            at=at + timedelta(milliseconds=number), user=chance.choice(pool), assistant=chance.choice(pool),
        )
        for number in range(first, first + count)
    ]  # fmt: skip


def _inserted(dsn: str, connection: psycopg.Connection[Any], running: Runtime, events: list[TurnTaken]) -> Figures:
    connection.execute("checkpoint")
    wal, rows = _wal_bytes(connection), 2 * len(events)
    began, cpu_ms, own_s = time.monotonic(), server_cpu_ms(dsn), time.process_time()
    for event in events:
        assert running.accept(event)
    if not running.writer.flush(INSERT_S_MAX):
        raise SystemExit(f"{running.writer.counters.pending} events are not stored after {INSERT_S_MAX} s")
    return {
        "rows": rows,
        "rows_per_s": round(rows / (time.monotonic() - began), 1),
        "cpu_ms": round((server_cpu_ms(dsn) - cpu_ms) / rows, 2),
        "agent_cpu_ms": round(1000 * (time.process_time() - own_s) / rows, 2),
        "wal_bytes": round((_wal_bytes(connection) - wal) / rows),
        "lacking": connection.execute("select count(*) from conversations where embedding is null").fetchone()[0],  # type: ignore[index]
    }


def _wal_bytes(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    return int(row[0]) if row else 0


def deletion(dsn: str, first: int, percent: int, limit_s: int, *, rebuild: bool = False) -> list[Figures]:
    """Delete the share of all rows that begins at `first` percent, and vacuum; returns what each step took.

    With `rebuild` the graph index is built again before.
    """
    steps = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        with measured(dsn, f"delete {percent} %") as step:
            rows = connection.execute(
                "delete from conversations where (hashint8extended(id, 0) & 1048575) %% 100 between %s and %s",
                [first, first + percent - 1],
            ).rowcount
        steps.append({**step, "rows": rows})
        connection.execute(f"set statement_timeout = '{limit_s}s'".encode())
        for name, statement in {
            **({"reindex": "reindex index concurrently conversations_meaning"} if rebuild else {}),
            "vacuum": "vacuum (index_cleanup on) conversations",
        }.items():
            with measured(dsn, name) as step, suppress(psycopg.errors.QueryCanceled):
                connection.execute(statement.encode())
                step["ended"] = True
            steps.append(step)
    return steps


def records(dsn: str) -> Figures:
    """Bytes of a row of the history, of a tombstone and of an event in the ledger, with their indexes."""
    found = {}
    with psycopg.connect(dsn) as connection:
        for table, statement in _RECORDS.items():
            before = _total_bytes(connection, table)
            connection.execute(statement.encode(), [RECORDS])
            found[table] = round((_total_bytes(connection, table) - before) / RECORDS)
            connection.rollback()
    log(f"bytes of a row: {found}")
    return found


def _total_bytes(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute("select pg_total_relation_size(%s::text::regclass)", [table]).fetchone()
    return int(row[0]) if row else 0


def chosen_themes(sizes: Counter[str], ranks: Sequence[int], exact_rows_max: int) -> list[int | None]:
    """The themes of these places by size, those just above and below the limit of exact search, and None for all."""
    above = sum(rows > exact_rows_max for rows in sizes.values())
    places = {rank for rank in (*ranks, above, above + 1) if 0 < rank <= len(sizes)}
    names = [name for name, _ in sizes.most_common()]
    return [*(int(names[place - 1].rsplit("-", 1)[1]) - 1 for place in sorted(places)), None]
