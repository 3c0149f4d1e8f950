"""Loading a corpus into an empty database: rows by COPY, then one index after the other, each with what it took."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from recall_comparison import log
from scale_corpus import SESSION_ROWS, YEAR_S, Block, ScaleCorpus, theme_name
from server_usage import server_cpu_ms, server_processes

from hermes_memory_pgvector.store.schema import migrations
from hermes_memory_pgvector.text import tokenizer

SAMPLE_S, LOG_EVERY_S = 2.0, 60.0
# 2024-01-01 in microseconds since 2000-01-01, as Postgres counts them.
STARTED_US = 8766 * 86_400_000_000
COLUMNS = "agent_identity, session_id, role, content, ts, embedding, search"
_BUILDING = "select blocks_done, blocks_total, tuples_done, phase from pg_stat_progress_create_index"


class Memory(threading.Thread):
    """The most RAM that the processes of a server took together until `stop`, in bytes; shared pages count once."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self.most, self._dsn, self._ended = 0, dsn, threading.Event()

    def run(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            log_at = time.monotonic() + LOG_EVERY_S
            while True:
                self.most = max(self.most, sum(_own_bytes(process) for process in server_processes(connection)))
                if self._ended.wait(SAMPLE_S):
                    return
                if time.monotonic() >= log_at:
                    log_at += LOG_EVERY_S
                    if row := connection.execute(_BUILDING).fetchone():
                        log(f"{row[3]}: {row[0]:,} of {row[1]:,} blocks, {row[2]:,} rows, {self.most >> 20:,} MB")

    def stop(self) -> int:
        self._ended.set()
        self.join()
        return self.most


def _own_bytes(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/smaps_rollup").read_text().split("\nPss:", 1)[1].split()
    except (OSError, IndexError):
        return 0
    return int(fields[0]) << 10


@contextmanager
def measured(dsn: str, name: str) -> Iterator[dict[str, Any]]:
    """Fill in what the block takes: seconds, CPU seconds of the server, and the most RAM of the server."""
    found: dict[str, Any] = {"name": name}
    memory = Memory(dsn)
    memory.start()
    began, cpu_ms = time.monotonic(), server_cpu_ms(dsn)
    try:
        yield found
    finally:
        found |= {
            "seconds": round(time.monotonic() - began, 1),
            "cpu_s": round((server_cpu_ms(dsn) - cpu_ms) / 1000, 1),
            "ram_mb": memory.stop() >> 20,
        }
        log(f"{name}: {found['seconds']:,} s, {found['cpu_s']:,} s of CPU, {found['ram_mb']:,} MB")


def load(dsn: str, corpus: ScaleCorpus) -> list[dict[str, Any]]:
    """Migrate an empty database, copy the rows, and build the indexes afterwards; returns what each step took."""
    migrations.migrate(dsn, dimensions=corpus.dimensions)
    steps = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        later = connection.execute(
            "select indexname, indexdef from pg_indexes where tablename = 'conversations'"
            " and indexdef !~ 'UNIQUE' order by indexdef ~ 'hnsw', indexname"
        ).fetchall()
        for name, _ in later:
            connection.execute(f"drop index {name}".encode())
        with measured(dsn, "rows") as step:
            _copy(connection, corpus)
        steps.append(step)
        with measured(dsn, "ledger") as step:
            connection.execute(
                "insert into memory_events select agent_identity, gen_random_uuid(), ts from conversations"
                " where role = 'user'"
            )
        steps.append(step)
        for name, definition in later:
            with measured(dsn, name) as step:
                connection.execute(definition)
            row = connection.execute("select pg_relation_size(%s::text::regclass)", [name]).fetchone()
            steps.append({**step, "bytes": row and row[0]})
        with measured(dsn, "vacuum analyze") as step:
            connection.execute("vacuum analyze conversations")
            connection.execute("vacuum analyze memory_events")
        steps.append(step)
    return steps


def _copy(connection: psycopg.Connection[Any], corpus: ScaleCorpus) -> None:
    packed = _packed_texts(connection, corpus.text_pool)
    counts = np.zeros(corpus.themes, np.int64)
    with connection.cursor().copy(f"copy conversations ({COLUMNS}) from stdin (format binary)".encode()) as copy:
        copy.write(b"PGCOPY\n\xff\r\n\0" + bytes(8))
        for block in corpus.blocks():
            copy.write(b"".join(_packed_rows(block, packed, counts, corpus.rows)))
            if block.first % 250_000 == 0:
                log(f"{block.first + len(block.themes):,} rows copied")
        copy.write(b"\xff\xff")


def _packed_texts(connection: psycopg.Connection[Any], pool: list[str]) -> list[tuple[bytes, bytes]]:
    """Each text and its words in the form of COPY; the text without its length."""
    packed = []
    for text in pool:
        row = connection.execute(
            "select tsvectorsend(strip(to_tsvector('english', %s)))", [tokenizer.document(text)], binary=True
        ).fetchone()
        assert row
        packed.append((text.encode(), _field(row[0])))
    return packed


def _field(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def _packed_rows(block: Block, packed: list[tuple[bytes, bytes]], counts: Any, rows: int) -> Iterator[bytes]:
    """The rows of a block in the form of binary COPY; `counts` are the rows of each theme so far."""
    dimensions = block.vectors.shape[1]
    head = struct.pack(">ihh", 4 + 2 * dimensions, dimensions, 0)
    vectors = block.vectors.astype(">f2")
    for place, (theme, text) in enumerate(zip(block.themes.tolist(), block.texts.tolist(), strict=True)):
        number, own = block.first + place, int(counts[theme])
        counts[theme] += 1
        content, words = packed[text]
        yield b"".join((
            b"\0\x07", _field(theme_name(theme).encode()), _field(b"s%d" % (own // SESSION_ROWS)),
            _field(b"assistant" if own % 2 else b"user"), _field(b"%b ref%d" % (content, number)),
            struct.pack(">iq", 8, STARTED_US + number * YEAR_S * 1_000_000 // rows),
            head, vectors[place].tobytes(), words,
        ))  # fmt: skip
