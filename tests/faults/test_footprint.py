"""Connections, threads and descriptors of a process, with many sessions and when it is idle."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.memory import QUICK
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.model import RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database

THREADS_MAX = 6


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, **QUICK, **changed}
        running.append(acquire(Settings(**values), tmp_path / "home"))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def turn(number: int) -> TurnTaken:
    return TurnTaken(theme="ops", session_id="s", user=f"question {number}", assistant=f"answer {number}")


def ask(runtime: Runtime, query: str, budget_s: float = 2.0) -> Any:
    return runtime.recall("turns", RecallRequest(query=query, scope=Scope("ops", ("ops",)), limit=5, budget_s=budget_s))


def ours(dsn: str, state: str = "%") -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and starts_with(application_name, 'hermes-pgvector') and state like %s",
            [state],
        ).fetchone()
    return int(row[0]) if row else 0


def threads(before: set[threading.Thread]) -> list[str]:
    return [
        thread.name
        for thread in set(threading.enumerate()) - before
        if "serve_forever" not in thread.name and "process_request" not in thread.name
    ]


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_thousand_leaked_sessions_cost_no_connection_thread_or_handle(
    start: Callable[..., Runtime], database: str
) -> None:
    before = set(threading.enumerate())
    leaked = []
    runtime = start()

    def lead_a_session(number: int) -> None:
        assert start() is runtime
        talk = Conversation(runtime.context, Identity(agent_identity="ops"), f"session-{number}", "primary")
        runtime.writer.wake()
        runtime.reconcile(talk.session.identity, talk.session.id)
        talk.take_turn(f"What is known about the machine {number}?", f"The machine {number} is in good health.")
        leaked.append(talk)

    for number in range(100):
        lead_a_session(number)
    assert runtime.writer.flush(60)
    ask(runtime, "machine")
    gc.collect()
    held, connected = handles(), runtime.database.pool_size()
    for number in range(100, 1000):
        lead_a_session(number)
    assert len(threads(before)) <= THREADS_MAX
    assert runtime.writer.flush(60)
    ask(runtime, "machine")
    assert len(threads(before)) <= THREADS_MAX
    assert runtime.database.pool_size() <= max(connected, 3)
    # A connection takes one, and the server of the test one for each that the embedder's client keeps.
    assert handles() <= held + 3
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from conversations").fetchone() == (2000,)


def test_idle_connections_are_closed_and_opened_again_when_needed(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(pool_idle_s=1, heal_interval_s=3600)
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    assert ours(database) > 0
    wait_for(lambda: ours(database) == 0)
    assert runtime.accept(turn(1))
    assert runtime.writer.flush(20)
    assert ask(runtime, "question 1").hits


def test_no_connection_is_held_while_embedding(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start(embed_wait_s=5, embed_timeout_s=10)
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    # What a process does once, after its first answer of the embedder, uses a connection, too.
    wait_for(lambda: runtime.compatibility.floor is not None)
    wait_for(lambda: not any(ours(database, state) for state in ("%transaction%", "active") * 5))
    with endpoint.hanging():
        asked = endpoint.waiting
        assert runtime.accept(turn(1))
        wait_for(lambda: endpoint.waiting > asked)
        for _ in range(10):
            assert ours(database, "%transaction%") == 0
            assert ours(database, "active") == 0
            time.sleep(0.05)
        answer = ask(runtime, "question 0", budget_s=1.0)
        assert {hit.content for hit in answer.hits} >= {"question 0"}
        assert answer.degraded
    assert runtime.writer.flush(20)


def test_a_connection_is_free_for_recall_while_the_writer_waits_for_postgres(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(pool_max=2, statement_timeout_s=20)
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table memory_events in access exclusive mode")
        assert runtime.accept(turn(1))
        wait_for(lambda: ours(database, "active") == 1)
        for _ in range(5):
            answer = ask(runtime, "question 0", budget_s=1.5)
            assert {hit.content for hit in answer.hits} >= {"question 0"}
            assert not answer.degraded
        assert ours(database) <= 2
        blocker.rollback()
    assert runtime.writer.flush(20)


def test_an_occasional_connection_is_never_one_more_than_pool_max(database: str, tmp_path: Path) -> None:
    settings = Settings(dsn=database, pool_max=2)  # type: ignore[arg-type]
    memory = Database(settings, tmp_path)
    try:
        with memory.connection(5), memory.connection(5):
            pass
        for _ in range(3):
            with memory.occasional_connection(5) as connection:
                connection.execute("select 1")
                assert ours(database) <= 2
    finally:
        memory.close()


def test_eight_sessions_at_work_take_three_connections_and_six_threads(
    start: Callable[..., Runtime], database: str
) -> None:
    before = set(threading.enumerate())
    runtime = start()
    runtime.wait_ready(10)
    most_threads = most_connections = 0

    def session(number: int) -> None:
        assert start() is runtime
        talk = Conversation(runtime.context, Identity(agent_identity="ops"), f"session-{number}", "primary")
        for count in range(12):
            talk.take_turn(f"What about machine {number}-{count}? {'word ' * 50}", f"Machine {number}-{count} is well.")
            ask(runtime, f"machine {number}-{count}")

    sessions = [threading.Thread(target=session, args=(number,), daemon=True) for number in range(8)]
    before |= set(sessions)
    for each in sessions:
        each.start()
    while any(each.is_alive() for each in sessions):
        most_threads = max(most_threads, len(threads(before)))
        most_connections = max(most_connections, ours(database))
        time.sleep(0.02)
    assert runtime.writer.flush(30)
    assert 0 < most_connections <= 3
    assert 0 < most_threads <= THREADS_MAX
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from conversations").fetchone() == (192,)
