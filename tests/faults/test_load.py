"""Many more callers than connections: all are answered in time, none is forgotten, and the writer goes on storing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.memory import QUICK
from loopback import Endpoint

from hermes_memory_pgvector.model import Recall, RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import retrieval

CALLERS, BUDGET_S, SLOW_S = 64, 2.0, 0.1
POOL_MAX = 2


@pytest.fixture
def runtime(tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A runtime with few connections, on a server that is slow to find the rows of hits."""
    settings = Settings(
        **{"dsn": database, "embed_url": endpoint.url, **QUICK, "pool_max": POOL_MAX, "heal_interval_s": 1}
    )
    running = acquire(settings, tmp_path / "home")
    for number in range(20):
        running.accept(turn(number))
    assert running.writer.flush(20)
    fetch = retrieval.fetch

    def slow(connection: Any, *asked: Any) -> Any:
        connection.execute("select pg_sleep(%s)", [SLOW_S])
        return fetch(connection, *asked)

    monkeypatch.setattr(retrieval, "fetch", slow)
    yield running
    release(running)


def turn(number: int) -> TurnTaken:
    return TurnTaken(theme="ops", session_id="s", user=f"question {number}", assistant=f"answer {number}")


def ask(runtime: Runtime) -> tuple[Recall, float]:
    began = time.monotonic()
    request = RecallRequest(query="question", scope=Scope("ops", ("ops",)), limit=5, budget_s=BUDGET_S)
    return runtime._recaller.recall("turns", request), time.monotonic() - began


def connections(dsn: str, seen: list[int], ended: Callable[[], bool]) -> None:
    """Count the connections of the agent until the end, in autocommit mode: a transaction sees old counts."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        while not ended():
            row = connection.execute(
                "select count(*) from pg_stat_activity"
                " where datname = current_database() and starts_with(application_name, 'hermes-pgvector')"
            ).fetchone()
            seen.append(int(row[0]) if row else 0)
            time.sleep(0.01)


def test_64_callers_share_few_connections_in_time_and_the_writer_stores_meanwhile(
    runtime: Runtime, database: str
) -> None:
    answers: list[tuple[Recall, float]] = []
    seen: list[int] = []
    callers = [threading.Thread(target=lambda: answers.append(ask(runtime))) for _ in range(CALLERS)]
    counter = threading.Thread(target=connections, args=(database, seen, lambda: len(answers) == CALLERS))
    counter.start()
    for caller in callers:
        caller.start()
    for number in range(20, 40):
        runtime.accept(turn(number))
    assert runtime.writer.flush(20)
    answered_before_writer = len(answers)
    for caller in (*callers, counter):
        caller.join(60)
    assert len(answers) == CALLERS
    # The writer did not wait for the recalls that were there before it.
    assert answered_before_writer < CALLERS / 2
    assert 1 <= max(seen) <= POOL_MAX
    late = [recall for recall, _ in answers if not recall.hits]
    assert 0 < len(late) < CALLERS
    assert all(recall.degraded for recall in late)
    assert max(took_s for _, took_s in answers) < 1.5 * BUDGET_S
