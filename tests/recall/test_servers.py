"""Which server answers a recall when several recalls, or a trial, end at the same moment; no server is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from hermes_memory_pgvector.errors import DatabaseUnavailable, StandbyBehind
from hermes_memory_pgvector.recall import servers
from hermes_memory_pgvector.recall.deadline import Deadline
from hermes_memory_pgvector.recall.servers import Servers
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.connection.standby import Standby


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Servers:
    """Servers whose trials succeed. The first one comes with the next recall after a failure."""
    monkeypatch.setattr(servers, "AWAY_S_FIRST", 1e-9)
    monkeypatch.setattr(Standby, "try_out", lambda _: None)
    settings = Settings(dsn="postgresql://primary/memory", recall_dsn="postgresql://standby/memory")
    return Servers(Database(settings, tmp_path), settings)


def standby_does(action: Callable[[], Any]) -> Callable[[Database, Deadline], None]:
    """A search that does so on the standby, and finds everything on the primary."""
    return lambda server, _: action() if isinstance(server, Standby) else None


def fail(asked: Servers, error: Exception) -> None:
    def failing() -> None:
        raise error

    asked.ask(standby_does(failing), Deadline(5))
    assert asked.recalls.standby_problem == str(error)


def answer(asked: Servers, meanwhile: Callable[[], Any] = lambda: None) -> None:
    asked.ask(standby_does(meanwhile), Deadline(5))


def test_of_two_recalls_after_a_trial_one_logs_the_end_of_the_outage(
    asked: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    fail(asked, DatabaseUnavailable("it is gone"))
    answer(asked)
    wait_for(lambda: not asked._trial_at)
    lock, both = asked._lock, threading.Barrier(2)

    class Together:
        """Both recalls take the lock as often, and each time only when the other one is about to, too."""

        def __enter__(self) -> None:
            both.wait(10)
            lock.acquire()

        def __exit__(self, *_: object) -> None:
            lock.release()

    asked._lock = Together()  # type: ignore[assignment]
    with ThreadPoolExecutor(2) as two:
        list(two.map(lambda _: answer(asked), range(2)))
    assert [record.args for record in caplog.records] == [("it is gone",), ()]


def test_a_recall_that_began_before_another_one_found_the_standby_behind_does_not_end_that(
    asked: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    behind = StandbyBehind("it is 9.0 s behind")
    answer(asked, lambda: fail(asked, behind))
    assert asked.recalls.standby_problem == str(behind)
    assert len(caplog.records) == 1


def test_a_standby_is_asked_again_where_no_thread_could_be_started_for_a_trial(
    asked: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(asked, DatabaseUnavailable("it is gone"))

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as exhausted:
        exhausted.setattr(threading.Thread, "start", refuse)
        answer(asked)
    answer(asked)
    assert (asked.recalls.standby_problem, asked.recalls.recalls_by_standby) == ("", 1)
