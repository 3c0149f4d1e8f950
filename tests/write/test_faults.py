"""Faults around the writer, on real servers and files: no accepted event is lost or stored twice."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from faultrig.postgres import own_postgres
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.errors import DatabaseUnavailable, SchemaNotApplied, explained
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import Add, Event, Recall, RecallRequest, Remove, Replace, Scope, TurnTaken
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.spool import Spool
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows as rows_store
from hermes_memory_pgvector.store.connection.checked import checked
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.embedded.server import EmbeddedServer, available
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.schema.migrations import migrate
from hermes_memory_pgvector.write import batches as batches_module
from hermes_memory_pgvector.write import refusals
from hermes_memory_pgvector.write import writer as writer_module
from hermes_memory_pgvector.write.batches import BatchProcessor
from hermes_memory_pgvector.write.writer import AsyncWriter

QUICK = {"retry_max_s": 0.3, "heal_interval_s": 1, "adopt_interval_s": 1, "connect_timeout_s": 1}


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    """Start the runtime of a home on a fresh database; settings may be changed by keyword."""
    running: list[Runtime] = []

    def make(home: Path = tmp_path / "home", **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", **QUICK, **changed}
        running.append(acquire(Settings(**values), home))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


@pytest.fixture
def own_server() -> Iterator[tuple[EmbeddedServer, str]]:
    """A migrated Postgres that a test may stop and start; its DSN does not start it by itself."""
    if not available():
        pytest.skip("needs the extra [embedded]: a server that the test may stop")
    with own_postgres() as server:
        yield server, server.dsn


def turn(number: int, theme: str = "ops") -> TurnTaken:
    return TurnTaken(
        theme=theme, session_id="s", user=f"question {number} about host-{number}", assistant=f"answer {number} is yes"
    )


def rows(dsn: str, statement: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement).fetchall()  # type: ignore[call-overload,no-any-return]


def turns_stored(dsn: str) -> dict[str, int]:
    return dict(rows(dsn, "select content, count(*) from conversations group by content"))


def expected(count: int) -> dict[str, int]:
    sides = [text for number in range(count) for text in (turn(number).user, turn(number).assistant)]
    return dict.fromkeys(sides, 1)


def unembedded(dsn: str) -> int:
    return int(rows(dsn, "select count(*) from conversations where embedding is null")[0][0])


def ask(runtime: Runtime, query: str, theme: str = "ops", budget_s: float = 3.0) -> Recall:
    return runtime.recall("turns", RecallRequest(query=query, scope=Scope(theme, (theme,)), limit=5, budget_s=budget_s))


def found(answer: Recall) -> set[str]:
    """The first two texts that were found: a question and its answer may stand in either order."""
    return {hit.content for hit in answer.texts[:2]}


def identities_hold(runtime: Runtime) -> None:
    counts = runtime.writer.counters
    assert counts.offered == counts.accepted + counts.refused
    assert counts.accepted + counts.adopted == (
        counts.applied + counts.already_there + counts.pending + counts.set_aside
    )


def test_a_burst_is_stored_whole_and_embedded(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(write_queue_maxsize=50)
    for number in range(500):
        assert runtime.accept(turn(number))
    assert runtime.writer.flush(60)
    assert turns_stored(database) == expected(500)
    wait_for(lambda: unembedded(database) == 0)
    assert runtime.writer.counters.applied == 500
    identities_hold(runtime)


@pytest.mark.parametrize("step", ["validate", "write"])
def test_an_event_with_an_unexpected_error_becomes_a_dead_letter_and_the_others_are_stored(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    apply, validate = rows_store.apply, batches_module.validate

    def fails(event: Event) -> bool:
        return isinstance(event, TurnTaken) and event.user == turn(1).user

    def failing_apply(connection: Any, batch: Any, *others: Any) -> int:
        if any(fails(prepared.event) for prepared in batch):
            raise ZeroDivisionError
        return apply(connection, batch, *others)

    def failing_validate(event: Event, settings: Settings) -> Event:
        if fails(event):
            raise ZeroDivisionError
        return validate(event, settings)

    if step == "write":
        monkeypatch.setattr(rows_store, "apply", failing_apply)
    else:
        monkeypatch.setattr(batches_module, "validate", failing_validate)
    runtime = start()
    for number in range(3):
        assert runtime.accept(turn(number))
    wait_for(lambda: runtime.writer.counters.set_aside == 1)
    (letter,) = runtime.dead_letters
    assert letter.reason == refusals.UNEXPECTED
    assert runtime.writer.flush(10)
    assert turns_stored(database) == {
        text: 1 for number in (0, 2) for text in (turn(number).user, turn(number).assistant)
    }
    identities_hold(runtime)


def test_an_unexpected_error_that_passes_costs_no_event(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    validate, failures = batches_module.validate, ["failure"] * batches_module.UNEXPECTED_MAX

    def failing_validate(event: Event, settings: Settings) -> Event:
        if failures:
            failures.pop()
            raise ZeroDivisionError
        return validate(event, settings)

    monkeypatch.setattr(batches_module, "validate", failing_validate)
    runtime = start()
    assert runtime.accept(turn(0))
    wait_for(lambda: not runtime.writer.counters.pending)
    assert turns_stored(database) == {turn(0).user: 1, turn(0).assistant: 1}
    assert runtime.writer.counters.set_aside == 0
    identities_hold(runtime)


KILLED = """
    import os, sys
    from hermes_memory_pgvector.model import TurnTaken
    from hermes_memory_pgvector.runtime import acquire
    from hermes_memory_pgvector.settings import Settings
    runtime = acquire(Settings(dsn=sys.argv[1], embed_url=sys.argv[2], embed_model="test"), sys.argv[3])
    for number in range(int(sys.argv[4])):
        assert runtime.accept(TurnTaken(theme="ops", session_id="s", user=f"question {number} about host-{number}",
                                        assistant=f"answer {number} is yes"))
        print(number, flush=True)
    ENDING
"""


def spawn(ending: str, database: str, endpoint: Endpoint, home: Path, count: int) -> subprocess.Popen[str]:
    script = textwrap.dedent(KILLED).replace("ENDING", ending)
    arguments = [sys.executable, "-P", "-c", script, database, endpoint.url, str(home), str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd="/")


@pytest.mark.parametrize("after", [1, 137, 400])
def test_sigkill_loses_nothing_that_was_accepted(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint, tmp_path: Path, after: int
) -> None:
    child = spawn("import time; time.sleep(60)", database, endpoint, tmp_path / "home", 500)
    assert child.stdout is not None
    accepted = 0
    for line in child.stdout:
        accepted = int(line) + 1
        if accepted >= after:
            break
    child.send_signal(signal.SIGKILL)
    accepted = max([accepted, *(int(line) + 1 for line in child.stdout)])
    child.wait()
    child.stdout.close()
    runtime = start()
    runtime.wait_ready(10)
    wait_for(lambda: len(turns_stored(database)) >= 2 * accepted)
    runtime.writer.flush(10)
    stored = turns_stored(database)
    assert expected(accepted).items() <= stored.items()
    assert set(stored.values()) == {1}
    identities_hold(runtime)


def test_an_exit_without_shutdown_loses_nothing(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    child = spawn("os._exit(0)", database, endpoint, tmp_path / "home", 40)
    assert child.communicate(timeout=60)[0].split()[-1] == "39"
    start().wait_ready(10)
    wait_for(lambda: turns_stored(database) == expected(40))


def test_a_process_does_not_take_over_the_spool_of_a_living_one(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    first, second = start(batch_linger_s=5), start(batch_linger_s=0)
    assert first is not second
    first.accept(turn(0))
    second.wait_ready(10)
    time.sleep(1.5)
    assert second.writer.counters.adopted == 0
    assert first.writer.flush(10)
    assert turns_stored(database) == expected(1)


def test_each_event_of_a_process_and_its_forked_child_is_stored_once(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    runtime.accept(turn(0))
    assert runtime.writer.flush(10)
    runtime.accept(turn(1))
    child = os.fork()
    if child == 0:
        runtime.accept(turn(2))
        os._exit(0)
    os.waitpid(child, 0)
    runtime.accept(turn(3))
    wait_for(lambda: turns_stored(database) == expected(4))
    identities_hold(runtime)


def test_postgres_down_at_start_loses_no_event(
    own_server: tuple[EmbeddedServer, str], start: Callable[..., Runtime]
) -> None:
    server, dsn = own_server
    server.stop(mode="fast")
    runtime = start(dsn=dsn)
    for number in range(20):
        assert runtime.accept(turn(number))
    started = time.monotonic()
    answer = ask(runtime, "question 3", budget_s=1.0)
    assert answer.hits == ()
    assert answer.degraded
    assert time.monotonic() - started < 3
    wait_for(lambda: bool(runtime.writer.health.problem))
    server.ensure_running()
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert turns_stored(dsn) == expected(20)
    assert turn(3).user in found(ask(runtime, "question 3"))
    wait_for(lambda: not ask(runtime, "question 3").degraded)


def test_events_in_memory_only_outlive_the_session_that_said_them(
    own_server: tuple[EmbeddedServer, str], endpoint: Endpoint, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    server, dsn = own_server
    values: dict[str, Any] = {"embed_url": endpoint.url, "embed_model": "test", "spool_dir": f"{tmp_path}/file/spool"}
    settings = Settings(dsn=dsn, shutdown_drain_s=0.5, **QUICK, **values)  # type: ignore[arg-type]
    server.stop(mode="fast")
    for number in range(3):
        runtime = acquire(settings, tmp_path / "home")
        assert runtime.accept(turn(number))
        release(runtime)
    assert runtime.writer.counters.pending == 3
    server.ensure_running()
    wait_for(lambda: turns_stored(dsn) == expected(3))
    assert acquire(settings, tmp_path / "home") is runtime
    wait_for(lambda: not runtime.writer.counters.pending)
    release(runtime)
    release(anew := acquire(settings, tmp_path / "home"))
    assert anew is not runtime, "it is closed as any other"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_postgres_between_events_loses_none(
    own_server: tuple[EmbeddedServer, str], start: Callable[..., Runtime], mode: Any
) -> None:
    server, dsn = own_server
    runtime = start(dsn=dsn, batch_max=8, batch_linger_s=0)
    for number in range(300):
        assert runtime.accept(turn(number))
        if number in (60, 200):
            server.stop(mode=mode)
        if number in (120, 260):
            server.ensure_running()
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert turns_stored(dsn) == expected(300)
    identities_hold(runtime)


def test_a_missing_schema_keeps_events_until_it_is_migrated(
    make_database: Callable[..., str], start: Callable[..., Runtime]
) -> None:
    dsn = make_database(dimensions=None)
    runtime = start(dsn=dsn)
    runtime.accept(turn(0))
    wait_for(lambda: "hermes-pgvector migrate" in runtime.writer.health.problem)
    assert any("hermes-pgvector migrate" in reason for reason in ask(runtime, "question", budget_s=1).degraded)
    migrate(dsn, dimensions=384)
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert turns_stored(dsn) == expected(1)


@pytest.mark.parametrize(
    "trouble", [{"status": 503}, {"status": 400}, {"not_a_number": True}, {"drop_last": True}, {"dimensions": 200}]
)
def test_an_embedder_that_fails_never_delays_rows_and_is_used_again_when_it_works(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint, trouble: dict[str, Any]
) -> None:
    runtime = start()
    runtime.accept(turn(0))
    wait_for(lambda: bool(turns_stored(database)) and unembedded(database) == 0)
    before = {name: getattr(endpoint, name) for name in trouble}
    vars(endpoint).update(trouble)
    for number in range(1, 10):
        assert runtime.accept(turn(number))
    assert runtime.writer.flush(20)
    assert turns_stored(database) == expected(10)
    answer = ask(runtime, "question 7")
    assert turn(7).user in found(answer)
    assert answer.degraded
    assert runtime.writer.counters.set_aside == 0
    assert unembedded(database) == 18
    vars(endpoint).update(before)
    wait_for(lambda: unembedded(database) == 0, 30)


def test_rows_stored_while_the_embedder_was_away_get_their_vectors(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start()
    runtime.wait_ready(10)
    endpoint.status = 503
    for number in range(30):
        runtime.accept(turn(number))
    assert runtime.writer.flush(20)
    assert unembedded(database) > 0
    endpoint.status = 200
    wait_for(lambda: unembedded(database) == 0)
    wait_for(lambda: not ask(runtime, "question 7").degraded)


def test_rows_are_stored_and_recalled_while_the_embedder_cannot_be_reached(
    start: Callable[..., Runtime], database: str
) -> None:
    spare = Endpoint()
    url = spare.url
    spare.close()
    runtime = start(embed_url=url)
    runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    assert ask(runtime, "question 0").hits
    assert unembedded(database) == 2


def test_a_hanging_embedder_delays_neither_rows_nor_recall(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start(embed_wait_s=0.3)
    runtime.wait_ready(10)
    with endpoint.hanging():
        for number in range(5):
            runtime.accept(turn(number))
        assert runtime.writer.flush(15)
        started = time.monotonic()
        answer = ask(runtime, "question 3", budget_s=1.0)
        assert time.monotonic() - started < 3
        assert turn(3).user in found(answer)
        assert answer.degraded
    wait_for(lambda: unembedded(database) == 0)


def test_a_database_with_other_vectors_is_read_by_words(
    make_database: Callable[..., str], start: Callable[..., Runtime]
) -> None:
    dsn = make_database(dimensions=768)
    runtime = start(dsn=dsn)
    runtime.accept(turn(0))
    assert runtime.writer.flush(20)
    assert turns_stored(dsn) == expected(1)
    answer = ask(runtime, "question 0")
    assert answer.hits
    assert any("768" in reason and "384" in reason for reason in answer.degraded)


def test_a_bad_event_is_cleaned_or_a_dead_letter_and_its_neighbours_are_stored(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    common = {"theme": "ops", "home": runtime.home.id}
    events = [
        turn(0),
        TurnTaken(theme="ops", session_id="s", user="a NUL \0 in here", assistant="half a pair \udc80 here"),
        TurnTaken(theme="ops", session_id="s", user="x" * 1_000_000, assistant="short"),
        TurnTaken(
            theme="ops", session_id="s", user="odd metadata", assistant="", metadata={"f": {1, 2}, "n": float("nan")}
        ),
        Add(target="memory", content="", **common),  # type: ignore[arg-type]
        Add(target="nowhere", content="an unknown target", **common),  # type: ignore[arg-type]
        Add(target="memory", content="a good entry", **common),  # type: ignore[arg-type]
        turn(1),
    ]
    for event in events:
        assert runtime.accept(event)
    assert runtime.writer.flush(30)
    stored = turns_stored(database)
    assert expected(2).items() <= stored.items()
    assert "a NUL  in here" in stored
    assert any(text.startswith("xxx") and "cut" in text for text in stored)
    assert "odd metadata" in stored
    assert rows(database, "select content from memory_entries") == [("a good entry",)]
    assert runtime.writer.counters.set_aside == 2
    assert len(runtime.dead_letters.ids()) == 2
    identities_hold(runtime)


def test_a_full_spool_refuses_and_counts(own_server: tuple[EmbeddedServer, str], start: Callable[..., Runtime]) -> None:
    server, dsn = own_server
    server.stop(mode="fast")
    runtime = start(dsn=dsn, spool_max_mb=1)
    big = "x" * 100_000
    accepted = [runtime.accept(TurnTaken(theme="ops", user=f"{number} {big}", assistant="")) for number in range(20)]
    assert True in accepted
    assert False in accepted
    assert runtime.writer.counters.refused == accepted.count(False)
    server.ensure_running()
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert rows(dsn, "select count(*) from conversations") == [(accepted.count(True),)]
    assert runtime.accept(turn(0))
    identities_hold(runtime)


def test_recall_sees_what_was_just_written(start: Callable[..., Runtime]) -> None:
    runtime = start()
    runtime.wait_ready(10)
    for number in range(10):
        runtime.accept(turn(number))
        assert turn(number).user in found(ask(runtime, turn(number).user))


def test_stopping_while_postgres_hangs_is_bounded_and_keeps_the_events(
    own_server: tuple[EmbeddedServer, str], start: Callable[..., Runtime], tmp_path: Path
) -> None:
    _, dsn = own_server
    runtime = start(dsn=dsn, shutdown_drain_s=1)
    runtime.wait_ready(10)
    with psycopg.connect(dsn) as blocker:
        blocker.execute("lock table conversations in access exclusive mode")
        runtime.accept(turn(0))
        started = time.monotonic()
        runtime.close(1)
        assert time.monotonic() - started < 8
    again = Runtime(runtime.settings, runtime.home.path)
    try:
        again.wait_ready(10)
        wait_for(lambda: turns_stored(dsn) == expected(1))
    finally:
        again.close(3)


def test_changes_of_entries_end_as_the_file_says_whatever_order_they_fail_in(
    own_server: tuple[EmbeddedServer, str], start: Callable[..., Runtime]
) -> None:
    server, dsn = own_server
    runtime = start(dsn=dsn, batch_max=1, batch_linger_s=0)
    runtime.wait_ready(10)
    common: dict[str, Any] = {"theme": "ops", "home": runtime.home.id, "target": "memory"}
    runtime.accept(Add(content="one", **common))
    server.stop(mode="immediate")
    runtime.accept(Add(content="two", **common))
    runtime.accept(Replace(content="one and a half", previous="one", **common))
    runtime.accept(Remove(previous="two", **common))
    server.ensure_running()
    runtime.accept(Add(content="three", **common))
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert sorted(rows(dsn, "select content from memory_entries")) == [("one and a half",), ("three",)]


def test_nothing_secret_reaches_the_log(
    start: Callable[..., Runtime], own_server: tuple[EmbeddedServer, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    _, dsn = own_server
    runtime = start(dsn=f"{dsn} password=tiger-secret")
    runtime.accept(TurnTaken(theme="ops", user="my private words are swordfish", assistant="bad \0 byte"))
    runtime.writer.flush(10)
    ask(runtime, "swordfish")
    heartbeats = [path.read_text() for path in runtime.home.state.rglob("state.json")]
    assert heartbeats
    for text in (caplog.text, runtime.database.label, runtime.writer.health.problem, *heartbeats):
        assert "tiger-secret" not in text
        assert "swordfish" not in text


def leave_behind(home: Path, *events: Event) -> Path:
    """Leave the spool of a dead process in a home; returns its folder."""
    spool = Spool(home / "pgvector" / "spool", bytes_max=1 << 30, window_max=1)
    for event in events:
        assert spool.append(event)
    folder = spool.folder
    assert folder is not None
    spool.close()
    return folder


@contextmanager
def ledger_locked(dsn: str) -> Iterator[None]:
    """Nothing can be stored while the block runs."""
    with psycopg.connect(dsn) as blocker:
        blocker.execute("lock table memory_events in access exclusive mode")
        yield
        blocker.rollback()


@contextmanager
def writer_with(dsn: str, folder: Path, ready: Callable[[], None], **changed: Any) -> Iterator[AsyncWriter]:
    """A writer that calls `ready` before each batch, and has no embedder."""

    def embedder(*, verify: bool) -> None:
        ready()

    settings = Settings(dsn=dsn, batch_linger_s=0, **changed)  # type: ignore[arg-type]
    home = Home(folder)
    spool = Spool(home.spool, bytes_max=1 << 30, window_max=10)
    database = Database(settings, folder)
    batches = BatchProcessor(spool, DeadLetters(home.state), database, settings, lambda event: event)
    writer = AsyncWriter(batches, embedder)
    try:
        yield writer
    finally:
        writer.stop(1)
        spool.close()
        database.close()


def test_an_error_that_is_not_about_an_event_makes_no_dead_letter(database: str, tmp_path: Path) -> None:
    tries: list[int] = []

    def ready() -> None:
        tries.append(1)
        if 1 < len(tries) < 20:
            raise RuntimeError("not about any event")

    with writer_with(database, tmp_path, ready, retry_max_s=0.1) as writer:
        assert writer.accept(turn(0))
        assert writer.flush(20)
        for number in range(1, 4):
            assert writer.accept(turn(number))
        wait_for(lambda: len(tries) > 20)
        assert writer.flush(20)
        assert writer.counters.set_aside == 0
        assert writer.counters.applied == 4


@contextmanager
def hooks_all_the_time(runtime: Runtime) -> Iterator[None]:
    """Another thread accepts one event after the other while the block runs."""
    over = threading.Event()

    def hooks() -> None:
        for number in count(1000):
            if over.wait(0.0005):
                return
            runtime.accept(turn(number, "busy"))

    thread = threading.Thread(target=hooks)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_hooks_that_never_pause_do_not_keep_the_writer_from_storing(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "HOOK_GAP_S", 0.3)
    monkeypatch.setattr(writer_module, "YIELD_S_MAX", 0.05)
    runtime = start()
    runtime.wait_ready(10)
    with hooks_all_the_time(runtime):
        wait_for(lambda: runtime.writer.counters.applied > 0)


def test_a_flush_does_not_wait_for_hooks_that_never_pause(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "YIELD_S_MAX", 3600)
    runtime = start()
    runtime.wait_ready(10)
    with hooks_all_the_time(runtime):
        assert runtime.accept(turn(0))
        assert runtime.writer.flush(20)
        assert expected(1).items() <= turns_stored(database).items()


def test_full_dead_letters_hold_up_none_of_the_rows_beside_them(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    runtime.load()
    runtime.dead_letters.folder.write_text("a file where the folder belongs")
    bad = Add(theme="ops", home=runtime.home.id, target="memory", content="")
    with monkeypatch.context() as held:
        # Accepted before the thread starts, the events are one batch.
        held.setattr(runtime.writer, "wake", lambda **_: None)
        for event in (turn(0), bad, turn(1)):
            assert runtime.accept(event)
        assert not runtime.writer.alive()
    runtime.writer.wake()
    wait_for(lambda: turns_stored(database) == expected(2))
    wait_for(lambda: str(runtime.dead_letters.folder) in runtime.writer.health.problem)
    assert runtime.writer.counters.pending == 3, "a batch with an unkept dead letter is not acknowledged"
    runtime.dead_letters.folder.unlink()
    assert runtime.writer.flush(10)
    assert runtime.dead_letters.ids() == [bad.id]
    assert turns_stored(database) == expected(2)
    identities_hold(runtime)


def test_events_are_accepted_while_no_thread_can_be_started_for_them(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = start()

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    runtime.load()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert all(runtime.accept(turn(number)) for number in range(3))
        assert not runtime.writer.flush(0.1)
    assert caplog.text.count("events stay in the spool for now: no thread can be started: can't start new thread") == 1
    assert runtime.accept(turn(3))
    wait_for(lambda: turns_stored(database) == expected(4))
    wait_for(lambda: not runtime.writer.health.problem)


def test_a_flush_ends_the_pause_after_a_failure(database: str, tmp_path: Path) -> None:
    tries: list[int] = []

    def ready() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise SchemaNotApplied("run the migrations")

    with writer_with(database, tmp_path, ready, retry_max_s=300) as writer:
        assert writer.accept(turn(0))
        wait_for(lambda: bool(writer.health.problem))
        assert writer.flush(3)


def test_a_backfill_that_fails_is_no_problem_of_the_writer(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(heal_interval_s=1)
    runtime.wait_ready(10)
    with psycopg.connect(database) as connection:
        connection.execute("alter table hermes_pgvector_leases rename to elsewhere")
        connection.execute("insert into conversations (agent_identity, role, content) values ('ops', 'user', 'bare')")
    problems = set()
    for number in range(25):
        assert runtime.accept(turn(number))
        time.sleep(0.1)
        problems.add(runtime.writer.health.problem)
    assert runtime.writer.flush(10)
    assert problems == {""}
    assert unembedded(database) == 1


def test_vectors_that_do_not_fit_the_column_lose_no_text(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    runtime.accept(turn(0))
    wait_for(lambda: bool(turns_stored(database)) and unembedded(database) == 0)
    with psycopg.connect(database) as connection:
        connection.execute("drop index conversations_meaning")
        connection.execute("alter table conversations alter column embedding type halfvec(768) using null")
    for number in range(1, 8):
        assert runtime.accept(turn(number))
    assert runtime.writer.flush(20)
    assert turns_stored(database) == expected(8)
    assert runtime.writer.counters.set_aside == 0


def test_many_orphans_are_stored_at_once_but_few_are_held_open(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    for number in range(60):
        leave_behind(tmp_path / "home", turn(number))
    runtime = start(adopt_interval_s=3600)
    runtime.wait_ready(10)
    most = 0
    deadline = time.monotonic() + 30
    while len(turns_stored(database)) < 120 and time.monotonic() < deadline:
        held = [file for file in open_files() if file.startswith(str(tmp_path)) and file.endswith("/lock")]
        most = max(most, len(held))
    assert turns_stored(database) == expected(60)
    assert 0 < most <= 2  # and its own
    wait_for(lambda: len(list((tmp_path / "home" / "pgvector" / "spool").glob("[!.]*"))) == 1)
    identities_hold(runtime)


def open_files() -> Iterator[str]:
    """The files that this process holds; other threads open and close theirs meanwhile."""
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/self/fd/{fd}")


def test_an_orphan_that_cannot_be_read_blocks_no_other(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    broken = leave_behind(tmp_path / "home", turn(0))
    (broken / "00000001.log").unlink()
    (broken / "00000001.log").mkdir()
    leave_behind(tmp_path / "home", turn(1))
    runtime = start()
    assert runtime.accept(turn(0))
    assert runtime.writer.flush(10)
    wait_for(lambda: turns_stored(database) == expected(2))
    assert runtime.writer.health.problem == ""
    assert broken.is_dir()


def test_damaged_records_of_two_orphans_are_both_kept(start: Callable[..., Runtime], tmp_path: Path) -> None:
    for number in range(2):
        folder = leave_behind(tmp_path / "home", turn(number))
        os.truncate(folder / "00000001.log", 40)
    runtime = start()
    runtime.wait_ready(10)
    wait_for(lambda: runtime.writer.counters.set_aside == 2)
    assert len(runtime.dead_letters.ids()) == 2
    identities_hold(runtime)


def test_the_counters_balance_when_the_writer_stops_and_starts_again(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    leave_behind(tmp_path / "home", *[turn(number) for number in range(5)])
    runtime = start(statement_timeout_s=1, batch_max=2)
    with ledger_locked(database):
        runtime.wait_ready(10)
        runtime.accept(turn(5))
        wait_for(lambda: runtime.writer.counters.adopted > 0)
        runtime.writer.stop(0.1)
        wait_for(lambda: not runtime.writer.alive())
        assert runtime.writer.counters.adopted == 0
        identities_hold(runtime)
    runtime.writer.wake()
    wait_for(lambda: turns_stored(database) == expected(6) and runtime.writer.counters.pending == 0)
    wait_for(lambda: runtime.writer.counters.applied == 6)
    identities_hold(runtime)


def test_the_counters_balance_when_a_closed_runtime_is_used_again(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(statement_timeout_s=1)
    runtime.wait_ready(10)
    with ledger_locked(database):
        runtime.accept(turn(0))
        runtime.close(0.1)
        wait_for(lambda: not runtime.writer.alive())
        identities_hold(runtime)
    runtime.accept(turn(1))
    wait_for(lambda: turns_stored(database) == expected(2) and runtime.writer.counters.pending == 0)
    identities_hold(runtime)


@not_on_citus.triggers
def test_a_batch_that_is_too_slow_as_a_whole_is_stored_in_parts(start: Callable[..., Runtime], database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.05); return new; end'"
        )
        connection.execute("create trigger slow before insert on conversations for each row execute function slow()")
    runtime = start(statement_timeout_s=1, batch_linger_s=0.5)
    for number in range(24):
        assert runtime.accept(turn(number))
    assert runtime.writer.flush(30)
    assert turns_stored(database) == expected(24)
    identities_hold(runtime)


def test_turns_of_this_process_do_not_wait_for_all_orphaned_ones(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    leave_behind(tmp_path / "home", *[turn(number) for number in range(1000)])
    runtime = start(batch_max=5, batch_linger_s=0)
    with ledger_locked(database):
        runtime.wait_ready(10)
        runtime.accept(turn(2000, "mine"))
    assert runtime.writer.flush(20)
    stored = turns_stored(database)
    assert turn(2000).user in stored
    assert len(stored) < 2000


def test_a_change_of_an_entry_waits_for_the_events_of_a_dead_process(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    runtime = start(batch_max=2, batch_linger_s=0)
    common: dict[str, Any] = {"theme": "ops", "home": runtime.home.id, "target": "memory"}
    left = [*[turn(number) for number in range(20)], Add(content="the port is 5432", **common)]
    leave_behind(tmp_path / "home", *left)
    for event in (turn(20), Remove(old_text="port", **common), turn(21)):
        assert runtime.accept(event)
    assert runtime.writer.flush(20)
    wait_for(lambda: turns_stored(database) == expected(22))
    wait_for(lambda: runtime.writer.counters.pending == 0)
    assert rows(database, "select content from memory_entries") == []
    identities_hold(runtime)


def test_a_forked_child_does_not_keep_the_locks_of_orphans(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    folder = leave_behind(tmp_path / "home", turn(0))
    runtime = start(statement_timeout_s=1)
    with ledger_locked(database):
        runtime.wait_ready(10)
        wait_for(lambda: runtime.writer.counters.adopted > 0)
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        try:
            runtime.writer.stop(0.1)
            wait_for(lambda: not runtime.writer.alive())
            found = list(orphans(runtime.home.spool))
            assert [orphan.folder for orphan in found] == [folder]
            for orphan in found:
                orphan.close()
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_a_process_that_stops_in_a_transaction_does_not_keep_the_others_of_its_home_waiting(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{Database.__module__}.ANSWER_S_MAX", 0.5)
    settings = Settings(dsn=database)  # type: ignore[arg-type]
    stopped, living = Database(settings, tmp_path), Database(settings, tmp_path)
    entry = Add(theme="ops", home="h", target="memory", content="The kelp is green.")
    prepared = prepare(entry)

    def stop_half_way() -> None:
        with stopped.transaction(5, 0.5) as connection:
            assert rows_store.apply(connection, [prepared]) == 1
            with living.transaction(5, 10) as other:
                assert rows_store.apply(other, [prepared]) == 1
            connection.execute("select 1")

    with closing(stopped), closing(living), pytest.raises(DatabaseUnavailable):
        stop_half_way()
    assert rows(database, "select content from memory_entries") == [(entry.content,)]


def test_what_fails_on_a_connection_is_not_explained_by_another_that_was_refused(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    dsn = make_database()
    name = dsn.split("dbname=")[1].split()[0]
    database = Database(Settings(dsn=dsn, connect_timeout_s=1), tmp_path)  # type: ignore[arg-type]
    told: list[str] = []

    def wait() -> None:
        with database.transaction(5, 1) as connection:
            operator.execute(f"alter database {name} allow_connections false".encode())
            with pytest.raises(DatabaseUnavailable) as refused, database.connection(1):
                pass
            told.append(explained(refused.value))
            connection.execute("select pg_sleep(3)")

    with closing(database), psycopg.connect(dsn.replace(name, "postgres"), autocommit=True) as operator:
        with pytest.raises(DatabaseUnavailable) as slow:
            wait()
        operator.execute(f"alter database {name} allow_connections true".encode())
    assert name in told[0]
    assert "QueryCanceled" in explained(slow.value)
    assert name not in explained(slow.value)


def test_a_statement_that_is_never_answered_is_given_up_also_outside_of_a_transaction(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{Database.__module__}.ANSWER_S_MAX", 0.5)
    began = time.monotonic()
    with closing(Database(Settings(dsn=database, statement_timeout_s=1), tmp_path)) as opened:  # type: ignore[arg-type]
        with pytest.raises(DatabaseUnavailable), opened.connection(5) as connection:
            connection.execute("select pg_sleep(30)")
        assert time.monotonic() - began < 15
        with opened.connection(5) as connection:
            assert connection.execute("select 1 as one").fetchone() == {"one": 1}


def test_a_server_that_stops_while_it_names_the_type_of_vectors_is_given_up(
    database: str, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.bin is None:
        pytest.skip("the processes of the tested server cannot be stopped")
    monkeypatch.setattr(f"{checked.__module__}.TYPE_S_MAX", 0.5)
    asking = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    opened = Database(Settings(dsn=database, connect_timeout_s=1), tmp_path)  # type: ignore[arg-type]
    with closing(opened), psycopg.connect(database) as other:
        other.execute("lock table pg_type")
        with pytest.raises(DatabaseUnavailable), opened.connection(0.2):
            pass
        wait_for(lambda: other.execute(asking).fetchone() is not None)
        ((pid,),) = other.execute(asking).fetchall()
        os.kill(pid, signal.SIGSTOP)
        try:
            other.rollback()
            with opened.connection(10) as connection:
                assert connection.execute("select 1 as one").fetchone() == {"one": 1}
        finally:
            os.kill(pid, signal.SIGCONT)
