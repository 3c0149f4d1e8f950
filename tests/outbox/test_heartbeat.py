"""The heartbeat of a process: whole or not at all, written seldom, and what makes a process stuck."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.model import now
from hermes_memory_pgvector.outbox import heartbeat
from hermes_memory_pgvector.outbox.heartbeat import (
    FILE,
    Counters,
    Embedding,
    Health,
    Heartbeat,
    WriterStatus,
    read,
    write,
)
from hermes_memory_pgvector.outbox.inspection import Backlog, Process

TIMES = st.datetimes(timezones=st.just(UTC))
HEARTBEATS = st.builds(
    Heartbeat,
    counters=st.builds(Counters, *[st.integers(0, 1 << 60)] * len(Counters.__slots__)),
    pid=st.integers(1, 1 << 22),
    started=TIMES,
    at=TIMES,
    progress=TIMES,
    last_success=st.none() | TIMES,
    failing_since=st.none() | TIMES,
    problem=st.text(),
    healed=st.integers(0, 1 << 60),
    healed_per_s=st.floats(0, 1e9),
    embedder_problem=st.text(),
)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that the test moves."""
    clock = Clock()
    monkeypatch.setattr(heartbeat, "time", clock)
    return clock


@settings(deadline=None)
@given(HEARTBEATS)
def test_a_heartbeat_is_read_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, sent: Heartbeat) -> None:
    folder = tmp_path_factory.getbasetemp()
    write(folder, sent)
    assert read(folder) == sent


def test_a_heartbeat_is_read_as_it_was_written_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def disk_is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(tmp_path, Heartbeat(counters=Counters(offered=1000), problem="the disk of the database server is full"))
    monkeypatch.setattr(heartbeat, "overwrite", disk_is_full)
    sent = Heartbeat(counters=Counters(offered=3, refused=3))
    write(tmp_path, sent)
    assert read(tmp_path) == sent


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": 1}', '{"counters": 3}', "\xff"])
def test_a_heartbeat_that_cannot_be_read_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, encoding="latin-1")
    assert read(tmp_path) is None
    assert read(tmp_path / "nowhere") is None


def send(folder: Callable[[], Path | None], clock: Clock, seconds: int, *, changes: bool) -> None:
    status = WriterStatus(10.0)
    for step in range(seconds * 10):
        clock.seconds += 0.1
        status.beat(folder, Counters(offered=step if changes else 0, pending=1), Embedding())


@pytest.mark.parametrize(("changes", "least", "most"), [(True, 55, 61), (False, 5, 7)])
def test_a_heartbeat_is_written_once_a_second_when_it_changes_and_seldom_when_not(
    tmp_path: Path, clock: Clock, changes: bool, least: int, most: int
) -> None:
    asked: list[int] = []

    def folder() -> Path:
        asked.append(1)
        return tmp_path

    send(folder, clock, 60, changes=changes)
    assert least <= len(asked) <= most


def test_a_heartbeat_that_cannot_be_written_raises_nothing(tmp_path: Path, clock: Clock) -> None:
    send(lambda: tmp_path / "nowhere", clock, 3, changes=True)
    send(lambda: None, clock, 3, changes=True)


def test_a_writer_is_stuck_when_it_settles_nothing_and_names_no_problem(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    status = WriterStatus(10.0)
    status.start()

    def beat(**counts: int) -> None:
        status.beat(lambda: None, Counters(offered=2, accepted=2, **counts), Embedding())

    def warnings(seconds: int) -> int:
        """How often it was logged so far that the writer is stuck, with events pending after some seconds."""
        clock.seconds += seconds
        status.warn_if_stuck(2)
        return caplog.text.count("the writer is stuck")

    for _ in range(9):
        beat(pending=2)
        assert warnings(1) == 0
    assert warnings(2) == 1, "it settles nothing"
    assert warnings(2) == 1, "it is logged once"
    status.health = Health(problem="Postgres is away")
    beat(pending=2)
    status.health = Health()
    assert warnings(9) == 1, "it names a problem"
    assert warnings(2) == 2, "the problem is old"
    beat(applied=1, pending=1)
    assert warnings(9) == 2
    assert caplog.text.count("not stuck any more") == 2
    clock.seconds += 11
    status.warn_if_stuck(0)
    assert warnings(0) == 3, "nothing was pending before"


def process(
    *, still_s: float, heartbeat_age_s: float = 0, waiting: int = 1, problem: str = "", alive: bool = True
) -> Process:
    """A process that settled nothing for `still_s` seconds; its heartbeat is `heartbeat_age_s` old."""
    moment = now()
    sent = Heartbeat(
        counters=Counters(accepted=waiting, pending=waiting),
        at=moment - timedelta(seconds=heartbeat_age_s),
        progress=moment - timedelta(seconds=still_s),
        problem=problem,
    )
    oldest = datetime(2026, 1, 1, tzinfo=UTC) if waiting else None
    return Process(Path("x"), alive, Backlog(1, waiting, 9, oldest) if waiting else Backlog(), sent, moment)


def test_the_condition_of_a_process_follows_from_its_heartbeat() -> None:
    assert process(still_s=5).condition(10) == "well"
    assert process(still_s=11).condition(10) == "stuck"
    assert process(still_s=500, waiting=0).condition(10) == "well"
    assert process(still_s=500, problem="x").condition(10) == "failing"
    assert process(still_s=500, heartbeat_age_s=500, problem="x").condition(10) == "stuck"
    assert process(still_s=500, heartbeat_age_s=500, problem="x", alive=False).condition(10) == "dead"


def test_an_event_that_came_to_an_idle_process_is_stuck_after_its_own_time() -> None:
    moment = now()
    idle = Heartbeat(counters=Counters(), progress=moment - timedelta(hours=1), at=moment - timedelta(hours=1))
    for age_s, condition in ((5, "well"), (15, "stuck")):
        waiting = Backlog(1, 1, 9, moment - timedelta(seconds=age_s))
        assert Process(Path("x"), True, waiting, idle, moment).condition(10) == condition
