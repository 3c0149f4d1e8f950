"""What an erasure reads: as much for a row of a large theme as for one of a small theme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg.rows import DictRow, dict_row

from hermes_memory_pgvector.store.erasure import selection
from hermes_memory_pgvector.store.erasure.selection import Selection

PAGE, ROWS = 20, 2000
Connect = Callable[[], AbstractContextManager[psycopg.Connection[DictRow]]]

ADD = """
    insert into facts (agent_identity, kind, target, content, status, written_at, event_id)
      select 'ops', 'V', 't' || i / 4, i, 'superseded', now() - make_interval(secs => %(rows)s - i), gen_random_uuid()
      from generate_series(1, %(rows)s) i;
    update facts f set superseded_by = n.id from facts n
      where n.target = f.target and n.content::int = f.content::int + 1;
    insert into conversations (agent_identity, session_id, role, content)
      select 'ops', 's', 'user', i from generate_series(1, %(rows)s) i;
    insert into memory_entries (agent_identity, target, content)
      select 'ops', 'memory', i from generate_series(1, %(rows)s) i;
    insert into memory_agent_edges (agent_identity, task) select 'ops', i from generate_series(1, %(rows)s) i;
    insert into memory_pruned_turns (agent_identity, session_id, content_key, times)
      select 'ops', 's', content_key(i::text || ' pruned'), 1 from generate_series(1, %(rows)s) i;
"""
BLOCKS = """
    select sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read) as blocks from pg_statio_user_tables
    where relname <> 'memory_erasures'"""


@pytest.fixture
def connect(database: str, monkeypatch: pytest.MonkeyPatch) -> Connect:
    monkeypatch.setattr(selection, "_page", partial(selection._page, limit=PAGE))

    @contextmanager
    def opened() -> Iterator[psycopg.Connection[DictRow]]:
        with psycopg.connect(database, autocommit=True, prepare_threshold=None, row_factory=dict_row) as connection:
            yield connection
            # A session that is closed may add what it has read to the counters of the server later.
            connection.execute("select pg_stat_force_next_flush()")

    return opened


def blocks(connect: Connect) -> int:
    with connect() as connection:
        return int((connection.execute(BLOCKS).fetchone() or {})["blocks"])


def add(connect: Connect, rows: int) -> None:
    with connect() as connection:
        connection.execute(ADD.replace("%(rows)s", str(rows)).encode())
        connection.execute("analyze")


def erase(connect: Connect, rows: int) -> int:
    """The blocks that the erasure of a theme with so many rows of each kind reads."""
    add(connect, rows)
    before = blocks(connect)

    def run(work: Callable[[Any], Any]) -> Any:
        with connection.transaction():
            return work(connection)

    with connect() as connection:
        begun = run(partial(selection.begin, selection=Selection(themes=("ops",))))
        for step in (selection.mark, selection.delete):
            for _ in step(run, begun):
                pass
    with connect() as connection:
        for table in ("facts", "conversations", "memory_entries", "memory_history", "memory_pruned_turns"):
            assert connection.execute(f"select count(*) from {table}".encode()).fetchone() == {"count": 0}, table
    return blocks(connect) - before


def test_a_row_of_a_large_theme_costs_as_much_as_one_of_a_small_theme(connect: Connect) -> None:
    few, many = (erase(connect, rows) / rows for rows in (ROWS, 3 * ROWS))
    assert many < 1.25 * few


def test_the_versions_of_a_fact_cost_as_much_in_a_large_theme_as_in_a_small_one(connect: Connect) -> None:
    found, read = [], []
    for rows in (ROWS // 10, ROWS):
        add(connect, rows)
        with connect() as connection:
            newest = connection.execute("select id from facts where target = 't2' and content = '11'").fetchone() or {}
        before = blocks(connect)
        with connect() as connection:
            found.append(selection.versions(connection, "facts", newest["id"], ("ops",)))
        read.append(blocks(connect) - before)
        with connect() as connection:
            connection.execute("truncate facts, conversations, memory_entries, memory_pruned_turns cascade")
    assert [len(ids) for ids in found] == [4, 4]
    assert read[1] < 2 * read[0]
