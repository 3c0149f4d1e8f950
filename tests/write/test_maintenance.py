"""Words that rows lack: added by one process of a fleet at a time, which rests between its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.outbox import inspection
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.write import maintenance, writer
from hermes_memory_pgvector.write.maintenance import Maintenance


def insert(dsn: str, count: int) -> None:
    """Rows as psql or a restore puts them in: without vectors and words."""
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into conversations (agent_identity, session_id, role, content) "
            "select 'ops', 's', 'user', 'row ' || n from generate_series(1, %s) as n",
            [count],
        )


def unworded(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from conversations where search is null").fetchone()
    return int(row[0]) if row else 0


@pytest.fixture
def made(database: str, tmp_path: Path) -> Iterator[Callable[..., Maintenance]]:
    """Makes the maintenance of one process after the other."""
    opened: list[Database] = []

    def make(share: float = 1.0) -> Maintenance:
        settings = Settings(dsn=database)  # type: ignore[arg-type]
        opened.append(Database(settings, tmp_path))
        found = Maintenance(opened[-1], settings, share=share)
        found.run_soon()
        return found

    yield make
    for each in opened:
        each.close()


def test_one_process_at_a_time_adds_words(made: Callable[..., Maintenance], database: str) -> None:
    insert(database, 3 * maintenance.ROWS_MAX)
    first, second = made(), made()
    assert first.step()
    assert not second.step()
    assert (first.rows_done, second.rows_done) == (maintenance.ROWS_MAX, 0)
    first.stop()
    second.run_soon()
    while second.step():
        pass
    assert second.rows_done == 2 * maintenance.ROWS_MAX
    assert unworded(database) == 0


def test_it_works_for_its_share_of_the_time(
    made: Callable[..., Maintenance], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(connection: object, limit: int) -> int:
        time.sleep(0.2)
        return limit

    monkeypatch.setattr(upkeep, "add_words", slowly)
    calm = made(share=0.25)
    assert calm.step()
    assert 0.4 < calm.pause_s < 2.0, "three times as long as the step took"
    assert not calm.step(), "it rests"
    assert calm.rows_done == maintenance.ROWS_MAX


def test_a_step_has_fewer_rows_after_one_that_took_long(
    made: Callable[..., Maintenance], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def add(connection: object, limit: int) -> int:
        asked.append(limit)
        return limit

    monkeypatch.setattr(upkeep, "add_words", add)
    filling = made()
    monkeypatch.setattr(maintenance, "STEP_S", 0.0)
    for _ in range(9):
        filling.step()
    assert asked == [64, 32, 16, 8, 4, 2, 1, 1, 1]
    monkeypatch.setattr(maintenance, "STEP_S", 60.0)
    for _ in range(9):
        filling.step()
    assert asked[9:] == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_rows_of_other_programs_are_completed_by_a_running_agent(
    database: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    settings = Settings(dsn=database, embed_url=endpoint.url, embed_model="test", heal_interval_s=1)  # type: ignore[arg-type]
    runtime = Runtime(settings, tmp_path / "home")
    try:
        runtime.writer.wake()
        assert runtime.wait_ready(10)
        insert(database, 20)

        def complete() -> bool:
            with psycopg.connect(database) as connection:
                row = connection.execute(
                    "select count(*) from conversations where embedding is not null and search is not null"
                ).fetchone()
            return row == (20,)

        wait_for(complete, 30)
    finally:
        runtime.close(1)


def test_an_error_with_the_words_holds_up_no_vectors(
    database: str, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(connection: object, limit: int) -> int:
        raise BadEvent("Postgres refuses these words")

    monkeypatch.setattr(upkeep, "add_words", failing)
    monkeypatch.setattr(maintenance, "RETRY_S", 0.01)
    settings = Settings(
        dsn=database,
        embed_url=endpoint.url,
        embed_model="test",
        heal_interval_s=1,
        embed_batch_max=1,  # type: ignore[arg-type]
    )
    insert(database, 20)
    runtime = Runtime(settings, tmp_path / "home")
    try:
        assert runtime.wait_ready(10)

        def embedded() -> bool:
            with psycopg.connect(database) as connection:
                row = connection.execute("select count(*) from conversations where embedding is not null").fetchone()
            return row == (20,)

        wait_for(embedded, 30)
        process = inspection.processes(runtime.home.spool)[0]
        assert process.heartbeat is not None
        assert process.heartbeat.embedder_problem == ""
    finally:
        runtime.close(1)


@pytest.mark.parametrize("changed", [{"embed_on_write": False}, {"embed_url": "", "embed_model": "absent"}])
def test_the_end_of_a_process_that_embeds_nothing_waits_for_no_vectors(
    database: str, tmp_path: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(writer, "VECTORS_S_MAX", 60.0)
    settings = Settings(**{"dsn": database, "embed_url": endpoint.url, "embed_model": "test", **changed})
    runtime = Runtime(settings, tmp_path / "home")
    assert runtime.accept(TurnTaken(theme="ops", session_id="s", user="a question", assistant="an answer"))
    ending = threading.Thread(target=runtime.close, args=(60,))
    ending.start()
    ending.join(20)
    assert not ending.is_alive()
