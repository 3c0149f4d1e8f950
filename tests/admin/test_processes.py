"""The processes of a home, as status and doctor show them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents import Agent
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.outbox.heartbeat import FILE
from hermes_memory_pgvector.outbox.inspection import processes

STUCK_AFTER_S = 3
DEAD_DSN = "postgresql://somebody@127.0.0.1:9/nowhere"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def look(home: Home, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run a command on the home from this process, which has no part in its memory."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")
    monkeypatch.setenv("HERMES_PGVECTOR_STUCK_AFTER_S", str(STUCK_AFTER_S))
    return lambda name="status", *words: hermes_pgvector("--home", str(home.path), "--json", name, *words)


@pytest.fixture
def agent(home: Home, database: str, endpoint: Endpoint, look: object) -> Iterator[Callable[..., Agent]]:
    running: list[Agent] = []

    def start(**settings: Any) -> Agent:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "words", "batch_linger_s": 0,
                  "stuck_after_s": STUCK_AFTER_S, "shutdown_drain_s": 0.5, **settings}  # fmt: skip
        running.append(Agent(home.path, str(len(running)), **values))
        return running[-1]

    yield start
    for one in running:
        one.end()


@contextmanager
def ledger_locked(dsn: str) -> Iterator[None]:
    """Postgres takes statements and does not answer them while the block runs."""
    with psycopg.connect(dsn) as blocker:
        blocker.execute("lock table memory_events in access exclusive mode")
        yield
        blocker.rollback()


def state_of(look: Callable[..., Outcome], agent: Agent) -> str:
    found = {process["pid"]: process["state"] for process in look().document["processes"]}
    return str(found.get(agent.pid))


def adopted(outcome: Outcome) -> list[Any]:
    return [process for process in outcome.document["processes"] if process["adopted"]]


def adds_up(counters: dict[str, Any]) -> bool:
    settled = counters["applied"] + counters["already_there"] + counters["set_aside"]
    return bool(
        counters["balanced"]
        and counters["offered"] == counters["accepted"] + counters["refused"]
        and counters["accepted"] + counters["adopted"] == settled + counters["pending"]
    )


def test_a_process_is_seen_before_its_first_event(look: Callable[..., Outcome], agent: Callable[..., Agent]) -> None:
    one = agent()
    wait_for(lambda: state_of(look, one) == "well")
    found = look()
    assert found.code == 0
    assert found.document["all_processes"]["counters"]["offered"] == 0
    assert found.document["processes"][0]["oldest_pending_s"] is None


def test_the_counters_of_several_processes_add_up_and_so_does_their_sum(
    look: Callable[..., Outcome], agent: Callable[..., Agent]
) -> None:
    agents = [agent(allowed_themes=["ops"], spool_max_mb=1) for _ in range(2)]
    for number, one in enumerate(agents):
        one.take(20 + number)
        one.take(3, theme="unheard-of")
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 41)
    document = look().document
    assert {process["pid"] for process in document["processes"]} == {one.pid for one in agents}
    assert all(adds_up(process["counters"]) for process in document["processes"])
    together = document["all_processes"]["counters"]
    assert adds_up(together)
    assert (together["offered"], together["applied"], together["set_aside"]) == (47, 41, 6)
    assert document["set_aside"] == 6
    assert document["all_processes"]["last_success"]
    assert document["rows"]["turns"] == 82


def test_the_table_of_processes_fits_a_terminal(
    look: Callable[..., Outcome], agent: Callable[..., Agent], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = agent(allowed_themes=["ops"])
    one.take(12)
    one.take(3, theme="unheard-of")
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 12)
    monkeypatch.setenv("COLUMNS", "80")
    lines = hermes_pgvector("--home", str(home.path), "status").out.splitlines()
    table = lines.index("Process  State  Offered  Refused  Stored  Pending  Notes")
    assert max(map(len, lines)) <= 80
    shown = " ".join(" ".join(lines[table + 1 : table + 5]).split())
    assert "well 15 0 12 0 last success" in shown
    assert "3 dead letters" in shown


def test_counters_add_up_in_the_middle_of_a_burst(
    look: Callable[..., Outcome], agent: Callable[..., Agent], home: Home
) -> None:
    one = agent()
    wait_for(lambda: any(process.heartbeat for process in processes(home.spool)))
    seen = set()

    def several_seen() -> bool:
        for process in processes(home.spool):
            assert process.heartbeat is not None
            assert process.heartbeat.counters.balanced
            seen.add(process.heartbeat.counters)
        return len(seen) > 1

    for _ in range(15):
        one.take(30)
        several_seen()
        time.sleep(0.2)
    wait_for(several_seen)
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 450)


def test_a_writer_that_hangs_is_stuck_for_every_command_and_well_again_afterwards(
    look: Callable[..., Outcome], agent: Callable[..., Agent], database: str
) -> None:
    one = agent(statement_timeout_s=60)
    one.take(1)
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 1)
    with ledger_locked(database):
        one.take(2)
        assert state_of(look, one) == "well"
        wait_for(lambda: state_of(look, one) == "stuck")
        found = look()
        assert found.code == 1
        assert found.document["all_processes"]["stuck"] == 1
        assert found.document["processes"][0]["oldest_pending_s"] >= STUCK_AFTER_S - 1
        assert f"process {one.pid}" in found.err
        told = look("doctor")
        check = next(check for check in told.document["checks"] if check["name"] == "writer")
        assert (told.code, check["verdict"]) == (1, "problem")
        assert str(one.pid) in check["remedy"]
        assert "the writer is stuck" not in one.log()
        for _ in range(5):
            one.take(1)
        assert one.log().count("the writer is stuck") == 1
    wait_for(lambda: state_of(look, one) == "well")
    assert look().code == 0
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 8)
    assert one.log().count("stuck") == 2, "the warning, and that it is over"


def test_a_stopped_process_with_events_is_stuck_and_one_without_is_not(
    look: Callable[..., Outcome], agent: Callable[..., Agent], database: str
) -> None:
    with ledger_locked(database):
        busy, idle = agent(statement_timeout_s=60), agent()
        busy.take(3)
        wait_for(lambda: {state_of(look, busy), state_of(look, idle)} == {"well"})
        for one in (busy, idle):
            os.kill(one.pid, signal.SIGSTOP)
        wait_for(lambda: state_of(look, busy) == "stuck")
        assert state_of(look, idle) == "well"
        for one in (busy, idle):
            os.kill(one.pid, signal.SIGCONT)
    wait_for(lambda: state_of(look, busy) == "well" and look().document["spool"]["events"] == 0)


def test_a_writer_that_reports_a_problem_is_failing_and_not_stuck(
    look: Callable[..., Outcome], agent: Callable[..., Agent]
) -> None:
    one = agent(dsn=DEAD_DSN, retry_max_s=600)
    one.take(3)
    wait_for(lambda: state_of(look, one) == "failing")
    since = time.monotonic()
    while time.monotonic() < since + STUCK_AFTER_S + 1:
        assert state_of(look, one) == "failing"
        time.sleep(0.3)
    one.take(1)
    wait_for(lambda: look().document["processes"][0]["waiting"]["events"] == 4)
    found = look()
    process = found.document["processes"][0]
    assert "Postgres does not answer" in process["problem"]
    assert process["failing_since"]
    assert found.document["all_processes"]["failing"] == 1
    assert "stuck" not in one.log()


def test_a_killed_process_is_counted_as_dead_and_its_events_by_the_process_that_takes_them_over(
    look: Callable[..., Outcome], agent: Callable[..., Agent], home: Home, database: str
) -> None:
    killed = agent(dsn=DEAD_DSN)
    killed.take(5)
    wait_for(lambda: state_of(look, killed) == "failing")
    killed.kill()
    document = look().document
    assert document["dead_processes"] == {"count": 1, "events": 5}
    assert document["processes"] == []
    assert document["all_processes"]["counters"]["offered"] == 0
    with ledger_locked(database):
        heir = agent(adopt_interval_s=1, statement_timeout_s=60)
        # It hangs with what it adopted, and not with events of its own.
        wait_for(lambda: look().document["all_processes"]["stuck"] == 1)
        together = look()
        assert f"process {heir.pid} stores nothing" in together.err
        assert together.document["spool"]["events"] == 5
        assert {process["pid"]: process["waiting"]["events"] for process in adopted(together)} == {heir.pid: 5}
        assert adds_up(together.document["all_processes"]["counters"])
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 5)
    together = look()
    assert together.document["all_processes"]["counters"]["adopted"] == 5
    assert adds_up(together.document["all_processes"]["counters"])
    assert adopted(together) == []
    assert [process.heartbeat.pid for process in processes(home.spool) if process.heartbeat] == [heir.pid]


def test_backfilled_rows_are_counted_by_the_process_that_does_it(
    look: Callable[..., Outcome], agent: Callable[..., Agent], endpoint: Endpoint
) -> None:
    one = agent(heal_interval_s=1)
    one.take(1)
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 1)
    endpoint.status = 503
    one.take(10)
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 11)
    rows = look().document["rows"]
    missing = rows["turns_without_vector"]
    assert missing > 0
    endpoint.status = 200
    wait_for(lambda: look().document["rows"]["turns_without_vector"] == 0)
    wait_for(lambda: look().document["all_processes"]["healed"] >= missing)


def test_the_heartbeat_of_a_process_is_removed_at_its_end(agent: Callable[..., Agent], home: Home) -> None:
    one = agent()
    wait_for(lambda: len(list(home.spool.glob(f"*/{FILE}"))) == 1)
    assert next(home.spool.glob(f"*/{FILE}")).stat().st_mode & 0o777 == 0o600
    one.end()
    assert list(home.spool.glob("[!.]*")) == []


def test_status_prints_a_row_for_each_process(
    home: Home, look: Callable[..., Outcome], agent: Callable[..., Agent]
) -> None:
    one = agent()
    one.take(3)
    wait_for(lambda: look().document["all_processes"]["counters"]["applied"] == 3)
    shown = hermes_pgvector("--home", str(home.path), "status")
    assert "1 process" in shown.out
    assert any(line.split()[:3] == [str(one.pid), "well", "3"] for line in shown.out.splitlines())
