"""How often a process waits for the server: with a database on another continent, little else takes time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import not_on_citus
import psycopg
import pytest
from loopback import Endpoint, vector
from statements import traced
from waiting import wait_for

from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.facts import state
from hermes_memory_pgvector.model import Add, Event, FactWritten, TurnTaken
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.write.batch import passages_of

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="libpq traces messages on Linux only"),
    not_on_citus.messages,
]
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(database: str, tmp_path: Path) -> Iterator[Database]:
    opened = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    yield opened
    opened.close()


def taken(number: int, themes: int) -> TurnTaken:
    return TurnTaken(**_named(f"theme-{number % themes}", number), user=f"question {number}", assistant="an answer")


def added(number: int) -> Add:
    return Add(**_named("theme", number), target="memory", content=f"note {number}")


def _named(theme: str, number: int) -> dict[str, Any]:
    at = START + timedelta(seconds=number)
    return {"id": uuid4().hex, "theme": theme, "home": "a" * 32, "session_id": "s", "at": at}


def waits(store: Database, events: list[Event], monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """How often a transaction that stores these events waits, from its opening to its commit."""
    prepared = list(map(prepare, events))
    for passage in passages_of(prepared):
        passage.vector, passage.pieces = vector(passage.content), (vector("one"), vector("two"))
    store.close()
    with traced(monkeypatch, folder) as trips:
        with store.connection(5):
            [before] = trips()
        with store.transaction(5, 5) as connection:
            assert rows.apply(connection, prepared) == len(events)
        [after] = trips()
        return after - before


@pytest.mark.parametrize("themes", [1, 12])
def test_turns_of_any_number_of_themes_are_stored_in_five_round_trips(
    themes: int, store: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[Event] = [taken(number, themes) for number in range(24)]
    # The opening, the locks, the turns, their pieces, and the commit.
    assert waits(store, events, monkeypatch, tmp_path) == 5


def test_an_entry_is_stored_in_three_round_trips_beside_those_of_its_batch(
    store: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert waits(store, [added(number) for number in range(10)], monkeypatch, tmp_path) <= 3 * 10 + 3


def test_the_facts_before_a_turn_are_read_in_one_round_trip(
    store: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts: list[Event] = [
        FactWritten(**_named("theme", 0), kind="V", target="soil", content="loam", scope="bed"),
        FactWritten(**_named("theme", 1), kind="V", target="port", content="5433"),
    ]
    with store.transaction(5, 5) as connection:
        rows.apply(connection, list(map(prepare, facts)))
    store.close()
    with traced(monkeypatch, tmp_path) as trips, store.connection(5) as connection:
        [before] = trips()
        read = state.read(connection, "theme", Settings())
        [after] = trips()
    assert [fact.target for fact in read.facts] == ["port", "soil"]
    assert [scope.label for scope in read.scopes] == ["bed"]
    assert after - before == 1


def test_a_process_that_starts_is_ready_after_six_round_trips_on_its_first_connection(
    database: str, endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(dsn=database, embed_url=endpoint.url, embed_model="test")  # type: ignore[arg-type]
    trips = [0]
    # The first process of a database gives it the person key and the model.
    for home in ("first", "second"):
        with traced(monkeypatch, tmp_path) as counted:
            runtime = acquire(settings, tmp_path / home)
            try:
                assert runtime.wait_ready(10)
                trips = counted()
            finally:
                release(runtime)
    assert trips[0] <= 6


@pytest.mark.parametrize(
    ("batch", "stops"),
    [([*(taken(number, 12) for number in range(24)), added(24)], "apply"), ([added(0)], "facts.lock")],
)
def test_a_process_that_stops_while_it_stores_keeps_no_locks(
    batch: list[Event], stops: str, store: Database, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        with psycopg.connect(database, autocommit=True) as others:
            alive = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            wait_for(lambda: not others.execute(alive).fetchall(), 10)

    def stored() -> None:
        with store.transaction(5, 5, idle_in_transaction_session_timeout="500") as connection:
            rows.apply(connection, list(map(prepare, batch)))
            stop()

    if stops != "apply":
        monkeypatch.setattr(f"hermes_memory_pgvector.store.{stops}", stop)
    with pytest.raises(DatabaseUnavailable):
        stored()
