"""Compares the rows of a database with what was accepted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from faultrig import diary
from faultrig.diary import Model
from waiting import wait_for

from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings

QUICK = {
    "retry_max_s": 0.3, "heal_interval_s": 1, "adopt_interval_s": 1, "connect_timeout_s": 1, "statement_timeout_s": 5,
    "embed_timeout_s": 1, "embed_wait_s": 0.3, "pool_idle_s": 2, "write_queue_maxsize": 20, "batch_max": 16,
    "batch_linger_s": 0.02, "shutdown_drain_s": 0.3, "embed_model": "test",
}  # fmt: skip

_KEY = re.compile(r"machine (\S+?)(?:\?| is)")


def all_is_stored(homes: Sequence[Path], settings: Mapping[str, Any], dsn: str) -> Model:
    """Store what waits in the homes, and assert that a database has all that their agents' hooks accepted, once."""
    for home in homes:
        runtime = acquire(Settings(**settings), home)
        try:
            settle(runtime, dsn)
        finally:
            release(runtime)
    model = diary.read(*(home / "diary" for home in homes))
    turns_are_those_of(model, dsn)
    assert model.permits(entries(dsn)) == ""
    return model


def settle(runtime: Runtime, dsn: str, timeout_s: float = 90.0) -> None:
    """Wait until all events of the home are stored and all rows have vectors."""
    assert runtime.wait_ready(20)
    spool = runtime.home.spool

    def stored() -> bool:
        return runtime.writer.counters.pending == 0 and not any(path != _own(runtime) for path in spool.glob("[!.]*"))

    wait_for(stored, timeout_s)
    wait_for(lambda: bare_rows(dsn) == 0, timeout_s)
    counts = runtime.writer.counters
    assert counts.offered == counts.accepted + counts.refused
    assert counts.accepted + counts.adopted == counts.applied + counts.already_there + counts.pending + counts.set_aside
    # A kill can tear the record of a hook that has not returned; nothing else may be set aside.
    assert [name for name in runtime.dead_letters.ids() if not name.startswith("damaged-")] == []


def _own(runtime: Runtime) -> Path | None:
    return runtime._spool.folder


def bare_rows(dsn: str) -> int:
    """Rows without a vector or without words."""
    with psycopg.connect(dsn) as connection:
        return sum(
            connection.execute(f"select count(*) from {table} where embedding is null or search is null").fetchone()[0]  # type: ignore[call-overload,index]
            for table in ("conversations", "memory_entries")
        )


def entries(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        found = Counter(row[0] for row in connection.execute("select content from memory_entries"))
    twice = [content for content, count in found.items() if count > 1]
    assert not twice, f"{len(twice)} entries are there twice: {twice[:5]}"
    return set(found)


def turns_are_those_of(model: Model, dsn: str) -> None:
    """Assert that each accepted turn is stored once with both sides, and no other turn but the doubtful ones."""
    with psycopg.connect(dsn) as connection:
        sides = Counter(
            (match.group(1), role)
            for content, role in connection.execute("select content, role from conversations")
            if (match := _KEY.search(content))
        )
    twice = [side for side, count in sides.items() if count > 1]
    assert not twice, f"{len(twice)} applied twice: {twice[:5]}"
    stored = {key for key, _ in sides}
    assert len(sides) == 2 * len(stored)
    lost = model.turns - stored
    assert not lost, f"{len(lost)} of {len(model.turns)} accepted turns lost: {sorted(lost)[:5]}"
    assert stored <= model.turns | model.maybe_turns
