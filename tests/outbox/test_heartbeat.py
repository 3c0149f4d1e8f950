"""What a process leaves beside its spool: whole or not at all, seldom, and what makes it stuck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Counters, now
from hermes_memory_pgvector.outbox import heartbeat
from hermes_memory_pgvector.outbox.heartbeat import FILE, Heartbeat, HeartbeatWriter, leave, read
from hermes_memory_pgvector.outbox.inspection import Backlog, Process

TIMES = st.datetimes(timezones=st.just(UTC))
SIGNS = st.builds(
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
)


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock of the pulse that the test moves."""
    clock = Clock()
    monkeypatch.setattr(heartbeat, "time", clock)
    return clock


@settings(deadline=None)
@given(SIGNS)
def test_signs_are_read_as_they_were_left(tmp_path_factory: pytest.TempPathFactory, signs: Heartbeat) -> None:
    folder = tmp_path_factory.getbasetemp()
    leave(folder, signs)
    assert read(folder) == signs


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": 1}', '{"counters": 3}', "\xff"])
def test_signs_that_cannot_be_read_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content, encoding="latin-1")
    assert read(tmp_path) is None
    assert read(tmp_path / "nowhere") is None


def beats(pulse: HeartbeatWriter, clock: Clock, seconds: int, *, news: bool) -> None:
    for step in range(seconds * 10):
        clock.seconds += 0.1
        pulse.beat(Heartbeat(counters=Counters(offered=step if news else 0, pending=1)))


@pytest.mark.parametrize(("news", "least", "most"), [(True, 55, 61), (False, 5, 7)])
def test_signs_are_written_once_a_second_when_there_is_news_and_seldom_without(
    tmp_path: Path, clock: Clock, news: bool, least: int, most: int
) -> None:
    asked: list[int] = []

    def folder() -> Path:
        asked.append(1)
        return tmp_path

    beats(HeartbeatWriter(folder, 10.0), clock, 60, news=news)
    assert least <= len(asked) <= most


def test_a_folder_that_cannot_be_written_disturbs_nobody(tmp_path: Path, clock: Clock) -> None:
    beats(HeartbeatWriter(lambda: tmp_path / "nowhere", 10.0), clock, 3, news=True)
    beats(HeartbeatWriter(lambda: None, 10.0), clock, 3, news=True)


def test_a_writer_is_overdue_when_it_settles_nothing_and_says_nothing(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    pulse = HeartbeatWriter(lambda: None, 10.0)
    pulse.rise()
    waiting = Heartbeat(counters=Counters(offered=2, accepted=2, pending=2))
    for _ in range(9):
        clock.seconds += 1
        pulse.beat(waiting)
        assert not pulse.overdue
    clock.seconds += 2
    assert pulse.overdue, "the thread goes round and round and settles nothing"
    pulse.warn(2)
    pulse.warn(2)
    assert caplog.text.count("stuck") == 1
    pulse.beat(Heartbeat(counters=Counters(offered=2, accepted=2, pending=2), problem="Postgres is away"))
    assert not pulse.overdue, "it says why"
    clock.seconds += 11
    assert pulse.overdue, "it said so a while ago"
    pulse.beat(Heartbeat(counters=Counters(offered=2, accepted=2, applied=1, pending=1)))
    assert not pulse.overdue


def process(*, still_s: float, told_s: float = 0, waiting: int = 1, problem: str = "", alive: bool = True) -> Process:
    """A process whose writer has settled nothing for a while and told how it fares some time ago."""
    moment = now()
    signs = Heartbeat(
        counters=Counters(accepted=waiting, pending=waiting),
        at=moment - timedelta(seconds=told_s),
        progress=moment - timedelta(seconds=still_s),
        problem=problem,
    )
    oldest = datetime(2026, 1, 1, tzinfo=UTC) if waiting else None
    return Process(Path("x"), alive, Backlog(1, waiting, 9, oldest) if waiting else Backlog(), signs, moment)


def test_the_condition_of_a_process_follows_from_what_it_told() -> None:
    assert process(still_s=5).condition(10) == "well"
    assert process(still_s=11).condition(10) == "stuck"
    assert process(still_s=500, waiting=0).condition(10) == "well"
    assert process(still_s=500, problem="x").condition(10) == "failing"
    assert process(still_s=500, told_s=500, problem="x").condition(10) == "stuck"
    assert process(still_s=500, told_s=500, problem="x", alive=False).condition(10) == "dead"


def test_an_event_that_came_while_nothing_waited_has_its_own_time_to_wait() -> None:
    moment = now()
    idle = Heartbeat(counters=Counters(), progress=moment - timedelta(hours=1), at=moment - timedelta(hours=1))
    for age_s, condition in ((5, "well"), (15, "stuck")):
        waiting = Backlog(1, 1, 9, moment - timedelta(seconds=age_s))
        assert Process(Path("x"), True, waiting, idle, moment).condition(10) == condition
