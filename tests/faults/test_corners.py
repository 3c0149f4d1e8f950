"""Rare faults of the spool, its disk and the services, with real files and processes."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.agent import Agents
from faultrig.disk import small_disk
from faultrig.memory import QUICK, bare_rows, entries
from faultrig.postgres import freeze, thaw
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.embedding import compatibility
from hermes_memory_pgvector.model import RecallRequest, Scope, TurnTaken
from hermes_memory_pgvector.outbox import spool as spool_module
from hermes_memory_pgvector.outbox.memory_queue import MemoryQueue
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.write import batches


def turn(number: int) -> TurnTaken:
    return TurnTaken(theme="ops", session_id="s", user=f"question {number}", assistant="")


def leave_behind(home: Path, *numbers: int) -> Path:
    """The spool that a dead process left in a home."""
    spool = Spool(home / "pgvector" / "spool", bytes_max=1 << 30, window_max=1)
    for number in numbers:
        assert spool.append(turn(number))
    folder = spool.folder
    assert folder is not None
    spool.close()
    return folder


def stored(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute("select content from conversations order by content")
        return sorted(int(row[0].removeprefix("question ")) for row in found)


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    """Start the runtime of a home; settings may be changed by keyword."""
    running: list[Runtime] = []

    def make(home: Path = tmp_path / "home", **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, **QUICK, **changed}
        running.append(acquire(Settings(**values), home))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def test_an_event_that_cannot_be_planned_becomes_a_dead_letter_and_the_rest_is_stored(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = batches.prepare

    def stumbles(event: Any, settings: Settings) -> Any:
        if event.user == "question 3":
            raise LookupError("nobody thought of this")
        return prepare(event, settings)

    monkeypatch.setattr(batches, "prepare", stumbles)
    runtime = start(batch_linger_s=0.5, retry_max_s=0.1)
    for number in range(6):
        assert runtime.accept(turn(number))
    assert runtime.writer.flush(20)
    assert stored(database) == [0, 1, 2, 4, 5]
    assert runtime.writer.counters.set_aside == 1
    assert len(runtime.dead_letters.ids()) == 1
    assert runtime.writer.counters.applied == 5


def test_a_memory_queue_that_was_closed_keeps_its_events_and_their_numbers(tmp_path: Path) -> None:
    spool = MemoryQueue(tmp_path, bytes_max=0, window_max=4)
    for number in range(3):
        assert spool.append(turn(number))
    on_its_way = spool.take(2)
    spool.close()
    assert spool.pending == 3
    assert spool.append(turn(3))
    assert not spool.append(turn(4))
    spool.acknowledge(on_its_way)
    given = spool.take(10)
    assert [item.event.user for item in given if isinstance(item.event, TurnTaken)] == [
        f"question {number}" for number in range(4)
    ]
    assert len({item.position for item in given}) == 4
    spool.acknowledge(given)
    assert spool.pending == 0


def test_a_large_backlog_does_not_take_all_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES_MAX", 1)
    before = len(os.listdir("/proc/self/fd"))
    spool = Spool(tmp_path, bytes_max=1 << 30, window_max=2)
    for number in range(100):
        assert spool.append(turn(number))
    assert len(os.listdir("/proc/self/fd")) - before <= 3
    spool.close()


def test_the_deletion_of_an_orphan_that_is_being_stored_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = leave_behind(tmp_path / "home", 0, 1, 2)
    (orphan,) = orphans(folder.parent)
    orphan.acknowledge(orphan.take(1))
    shutil.rmtree(folder)
    with caplog.at_level(logging.ERROR, logger="hermes.pgvector"):
        assert orphan.take(10) == []
    assert "the events left in it are lost" in caplog.text
    orphan.close()


def test_a_running_process_takes_over_the_spool_of_a_dead_one(
    agents: Agents, database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    settings = {**QUICK, "dsn": database, "embed_url": endpoint.url}
    for number in range(3):
        agents.start(
            home=str(home), files=False, pause_s=1e6, seed=number, settings=settings, acts=0, idle=True, polite=False
        )
    wait_for(lambda: connected(database) >= 3)
    folder = leave_behind(home, *range(50))
    wait_for(lambda: not folder.exists())
    assert stored(database) == list(range(50))
    assert len(agents.running) == 3
    assert not any(agents.ended(pid) for pid in agents.running)


def connected(dsn: str) -> int:
    """Processes of ours with a connection to this database."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() "
            "and starts_with(application_name, 'hermes-pgvector')"
        ).fetchone()
    return int(row[0]) if row else 0


@pytest.fixture
def tiny_disk() -> Iterator[Path]:
    """A file system of 256 KiB."""
    with small_disk("256k") as folder:
        yield folder


def test_a_full_disk_refuses_and_counts_and_loses_nothing(
    start: Callable[..., Runtime], database: str, tiny_disk: Path
) -> None:
    runtime = start(tiny_disk / "home", batch_linger_s=0)
    assert runtime.home.id
    runtime.wait_ready(10)
    filler = tiny_disk / "filler"
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table memory_events in access exclusive mode")
        filler.write_bytes(b"x" * (150 << 10))
        big = "y" * 5000
        accepted = [
            runtime.accept(TurnTaken(theme="ops", user=f"question {number}", assistant=big)) for number in range(40)
        ]
        assert accepted[0]
        assert not accepted[-1]
        assert runtime.writer.counters.refused == accepted.count(False)
        blocker.rollback()
    assert runtime.writer.flush(20)
    kept = [number for number, taken in enumerate(accepted) if taken]
    with psycopg.connect(database) as connection:
        connection.execute("delete from conversations where role = 'assistant'")
    assert stored(database) == kept
    filler.unlink()
    assert runtime.accept(turn(40))
    assert runtime.writer.flush(20)
    assert stored(database) == [*kept, 40]
    assert runtime.dead_letters.ids() == []


def test_two_copies_of_the_package_in_one_process_share_no_spool(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    ours = start()
    package = Path(batches.__file__).parent.parent
    spec = importlib.util.spec_from_file_location(
        "another_copy", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules["another_copy"] = copy = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(copy)
        runtimes = importlib.import_module("another_copy.runtime")
        settings = importlib.import_module("another_copy.settings")
        model = importlib.import_module("another_copy.model")
        theirs = runtimes.acquire(settings.Settings(**ours.settings.model_dump()), tmp_path / "home")
        assert type(theirs) is not Runtime
        for number in range(0, 40, 2):
            assert ours.accept(turn(number))
            assert theirs.accept(model.TurnTaken(theme="ops", user=f"question {number + 1}", assistant=""))
        assert ours.home.id == theirs.home.id
        assert ours.writer.flush(20)
        assert theirs.writer.flush(20)
        assert stored(database) == list(range(40))
        assert ours.writer.counters.adopted == theirs.writer.counters.adopted == 0
        runtimes.release(theirs)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "another_copy"]:
            del sys.modules[name]


def test_a_frozen_postgres_delays_no_recall_and_loses_nothing(own_server: Any, start: Callable[..., Runtime]) -> None:
    runtime = start(dsn=own_server.dsn, statement_timeout_s=1, pool_idle_s=30)
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    frozen = freeze(own_server)
    try:
        for number in range(1, 40):
            assert runtime.accept(turn(number))
        request = RecallRequest(query="question", scope=Scope("ops", ("ops",)), limit=5, budget_s=1.0)
        for _ in range(3):
            began = time.monotonic()
            answer = runtime.recall("turns", request)
            assert time.monotonic() - began < 3
            assert answer.degraded
        wait_for(lambda: bool(runtime.writer.health.problem))
    finally:
        thaw(frozen)
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert stored(own_server.dsn) == list(range(40))


def test_a_home_that_cannot_be_written_still_stores_and_recalls(
    start: Callable[..., Runtime], database: str, tiny_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tiny_disk / "home"
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "MEMORY.md").write_text("the port is 5432")
    subprocess.run(["mount", "-o", "remount,ro", tiny_disk], check=True)
    runtime = start(home, write_queue_maxsize=5)
    talk = Conversation(runtime.context, Identity(agent_identity="ops"), "s", "primary")
    runtime.reconcile(talk.session.identity, "s")
    talk.take_turn("Where is the machine of the lab now?", "The machine of the lab is in row 7 of the hall.")
    talk.change_entry("add", "memory", "the lab has one machine", {})
    talk.change_entry("replace", "memory", "the lab has two machines", {"previous_content": "the lab has one machine"})
    assert runtime.writer.flush(20)
    assert entries(database) == {"the lab has two machines"}
    answer = runtime.recall(
        "turns", RecallRequest(query="machine of the lab", scope=Scope("ops", ("ops",)), limit=5, budget_s=2)
    )
    assert len(answer.texts) == 2
    assert "events are kept in memory" in caplog.text
    with psycopg.connect(database) as blocker:
        blocker.execute("lock table memory_events in access exclusive mode")
        taken = [runtime.accept(turn(number)) for number in range(20)]
        assert taken.count(True) == 5
        assert runtime.writer.counters.refused == 15
        blocker.rollback()
    assert runtime.writer.flush(20)
    counts = runtime.writer.counters
    assert counts.offered == counts.accepted + counts.refused
    assert counts.accepted == counts.applied + counts.set_aside


def test_an_endpoint_that_served_another_model_at_the_start_is_tried_again(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "REMATCH_S", 1.0)
    endpoint.dimensions = 200
    runtime = start()
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    wait_for(lambda: "200" in str(runtime.compatibility.usable()))
    endpoint.dimensions = 384
    wait_for(lambda: bare_rows(database) == 0)
    assert not isinstance(runtime.compatibility.usable(), str)
