"""Events of one home that are stored out of order leave the same entries as events in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.memory import QUICK, entries
from loopback import Endpoint

from hermes_memory_pgvector.mirror import reconcile
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.mirror.reconcile import Reconciler
from hermes_memory_pgvector.model import Add, Event, Remove, Replace, now
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings

START = now() - timedelta(hours=1)


def add(content: str, minute: int, **more: Any) -> Add:
    return Add(content=content, at=START + timedelta(minutes=minute), **more)


def remove(content: str, minute: int, **more: Any) -> Remove:
    return Remove(previous=content, at=START + timedelta(minutes=minute), **more)


def replaced(old: str, new: str, minute: int, **more: Any) -> Replace:
    return Replace(previous=old, content=new, at=START + timedelta(minutes=minute), **more)


@pytest.fixture
def store(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., set[str]]]:
    """Store events in the given order, whatever their times; returns the entries that result."""
    runtime: Runtime = acquire(Settings(dsn=database, embed_url=endpoint.url, **QUICK), tmp_path / "home")  # type: ignore[arg-type]
    common = {"theme": "ops", "home": runtime.home.id, "target": "memory"}

    def run(*makers: Callable[..., Event]) -> set[str]:
        for make in makers:
            assert runtime.writer.accept(make(**common))
            assert runtime.writer.flush(20)
        return entries(database)

    yield run
    release(runtime)


def test_an_entry_removed_since_does_not_come_back_by_a_late_add(store: Callable[..., set[str]]) -> None:
    added, added_again = lambda **c: add("one", 1, **c), lambda **c: add("one", 2, **c)
    assert store(added, lambda **c: remove("one", 3, **c), added_again) == set()


def test_an_entry_replaced_since_does_not_come_back_by_a_late_add(store: Callable[..., set[str]]) -> None:
    late = lambda **c: add("one", 2, **c)  # noqa: E731
    assert store(lambda **c: add("one", 1, **c), lambda **c: replaced("one", "two", 3, **c), late) == {"two"}


def test_an_entry_added_again_outlives_a_late_remove(store: Callable[..., set[str]]) -> None:
    added, added_again = lambda **c: add("one", 1, **c), lambda **c: add("one", 3, **c)
    assert store(added, added_again, lambda **c: remove("one", 2, **c)) == {"one"}
    assert store(lambda **c: remove("one", 4, **c)) == set()


def test_a_file_read_again_keeps_an_entry_from_a_late_remove(store: Callable[..., set[str]]) -> None:
    read = lambda **c: add("one", 3, from_file=True, **c)  # noqa: E731
    assert store(lambda **c: add("one", 1, **c), read, lambda **c: remove("one", 2, **c)) == {"one"}


def test_a_late_replacement_takes_nothing_that_came_after_it(store: Callable[..., set[str]]) -> None:
    late = lambda **c: replaced("one", "two", 2, **c)  # noqa: E731
    assert store(lambda **c: add("one", 3, **c), late) == {"one", "two"}


def test_another_home_removes_what_it_shares_whatever_its_clock_says(
    store: Callable[..., set[str]], database: str
) -> None:
    store(lambda **c: add("one", 3, **c))
    with psycopg.connect(database) as connection:
        connection.execute("update memory_entries set home = 'another'")
    assert store(lambda **c: remove("one", 2, **c)) == set()


def test_changes_of_a_home_are_as_new_as_their_place_in_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Event] = []

    def take(event: Event) -> bool:
        taken.append(event)
        return True

    mirror = Reconciler(Home(tmp_path), take)
    first, second = add("one", 1, theme="ops", target="memory"), remove("one", 0, theme="ops", target="memory")
    clock: list[datetime] = [now(), START]
    monkeypatch.setattr(reconcile, "now", lambda: clock.pop(0))
    assert mirror.change(first)
    assert mirror.change(second)
    assert taken[0].at < taken[1].at
    assert taken[0].id == first.id


def test_changes_of_a_home_are_as_new_as_their_place_in_the_snapshot_for_all_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken: list[Event] = []
    right, ahead = now(), now() + timedelta(days=900)

    def process(clock: datetime) -> Reconciler:
        monkeypatch.setattr(reconcile, "now", lambda: clock)
        return Reconciler(Home(tmp_path), lambda event: taken.append(event) is None)

    (tmp_path / "memories").mkdir()
    common: dict[str, Any] = {"theme": "ops", "target": "memory"}
    wrong = process(ahead)
    assert wrong.change(Add(content="one", **common))
    assert wrong.change(Remove(previous="one", **common))
    assert "dated" not in caplog.text
    corrected = process(right)
    for content in "one", "two":
        assert corrected.change(Add(content=content, **common))
    (tmp_path / "memories" / "MEMORY.md").write_text("one")
    process(right).reconcile("ops", "s")
    assert [type(event).__name__ for event in taken] == ["Add", "Remove", "Add", "Add", "Remove"]
    assert all(before.at < after.at for before, after in itertools.pairwise(taken))
    assert caplog.text.count(f"is dated {ahead:%Y-%m-%d}") == 2, "once a process"
