"""The runtime of a home: its memory files, its themes, its sharing, its settings at work."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from servers import Server
from waiting import wait_for

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.model import Add, RecallRequest, Remove, Replace, Scope, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.schema import migrations
from hermes_memory_pgvector.text import suspicion
from hermes_memory_pgvector.write import writer

AGENT = Identity()


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(home: str = "home", **changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "batch_linger_s": 0, **changed}
        (tmp_path / home / "memories").mkdir(parents=True, exist_ok=True)
        runtime = acquire(Settings(**values), tmp_path / home)
        running.append(runtime)
        assert runtime.wait_ready(10)
        return runtime

    yield make
    for runtime in running:
        release(runtime)


def edit(runtime: Runtime, *entries: str, file: str = "MEMORY.md") -> None:
    (runtime.home.path / "memories" / file).write_text("\n§\n".join(entries), encoding="utf-8")


def entries(database: str) -> list[tuple[str, str, str]]:
    with psycopg.connect(database) as connection:
        return connection.execute(
            "select agent_identity, target, content from memory_entries order by 1, 2, 3"
        ).fetchall()


def reconciled(runtime: Runtime, identity: Identity = AGENT) -> None:
    """Reconcile, and wait until it is stored."""
    runtime.files.reconcile(
        runtime.context.theme(identity, None) if not identity.gateway_session_key else "default", "s"
    )
    assert runtime.writer.flush(10)


def change(runtime: Runtime, event: Add | Replace | Remove, *after: str) -> None:
    """What the host does: it writes the file, then it calls the hook."""
    edit(runtime, *after)
    assert runtime.files.change(event)
    assert runtime.writer.flush(10)


def common(runtime: Runtime, theme: str = "default") -> dict[str, Any]:
    return {"theme": theme, "home": runtime.home.id, "target": "memory"}


def test_the_files_of_a_home_are_imported_into_its_own_theme(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    edit(runtime, "the staging host is db-prod-03", "deploys are on Tuesdays")
    edit(runtime, "likes short answers", file="USER.md")
    reconciled(runtime)
    assert entries(database) == [
        ("default", "memory", "deploys are on Tuesdays"),
        ("default", "memory", "the staging host is db-prod-03"),
        ("default", "user", "likes short answers"),
    ]
    reconciled(runtime)
    assert runtime.writer.counters.offered == 3


def test_a_line_deleted_by_hand_is_forgotten(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    edit(runtime, "keep", "drop")
    reconciled(runtime)
    edit(runtime, "keep")
    reconciled(runtime)
    assert entries(database) == [("default", "memory", "keep")]


def test_an_unreadable_file_removes_nothing(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    edit(runtime, "keep")
    reconciled(runtime)
    (runtime.home.path / "memories" / "MEMORY.md").write_bytes(b"\xff\xfe broken")
    reconciled(runtime)
    assert entries(database) == [("default", "memory", "keep")]


def test_entries_of_another_home_on_the_same_theme_stay(start: Callable[..., Runtime], database: str) -> None:
    one, two = start("one"), start("two")
    edit(one, "from one")
    edit(two, "from two")
    for runtime in (one, two, one, two):
        reconciled(runtime)
    assert [content for _, _, content in entries(database)] == ["from one", "from two"]
    edit(one)
    reconciled(one)
    assert [content for _, _, content in entries(database)] == ["from two"]


def test_what_a_theme_wrote_is_not_copied_into_the_theme_of_the_home(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    change(runtime, Add(content="billing only", **common(runtime, "billing")), "billing only")
    reconciled(runtime)
    (runtime.home.state / "snapshot.jsonl").unlink()
    runtime.files._seen = {}
    reconciled(runtime)
    assert entries(database) == [("billing", "memory", "billing only")]


def test_a_change_without_the_old_entry_finds_it_by_the_file(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    edit(runtime, "port is 5432 on db-a", "port is 5432 on db-b")
    reconciled(runtime)
    change(
        runtime,
        Replace(content="port is 6432 on db-a", old_text="5432 on db-a", **common(runtime)),
        "port is 6432 on db-a",
        "port is 5432 on db-b",
    )
    assert [c for _, _, c in entries(database)] == ["port is 5432 on db-b", "port is 6432 on db-a"]
    change(runtime, Remove(old_text="5432", **common(runtime)), "port is 6432 on db-a")
    assert [c for _, _, c in entries(database)] == ["port is 6432 on db-a"]
    reconciled(runtime)
    assert [c for _, _, c in entries(database)] == ["port is 6432 on db-a"]


def test_an_entry_removed_elsewhere_is_not_brought_back_by_the_file(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    edit(runtime, "one", "two")
    reconciled(runtime)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from memory_entries where content = 'one'")
    runtime.files._seen = {}
    reconciled(runtime)
    assert entries(database) == [("default", "memory", "two")]


def test_events_of_a_theme_outside_allowed_themes_become_dead_letters(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(allowed_themes=["billing"])
    assert runtime.accept(TurnTaken(theme="biling", user="a typo must not publish", assistant="into a new theme"))
    assert runtime.accept(TurnTaken(theme="billing", user="this one is right", assistant="and is stored"))
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        assert connection.execute("select distinct agent_identity from conversations").fetchall() == [("billing",)]
    assert [letter.reason for letter in runtime.dead_letters] == ["the theme is not in allowed_themes"]
    counts = runtime.writer.counters
    assert (counts.offered, counts.accepted, counts.applied, counts.set_aside) == (2, 2, 1, 1)


def test_the_model_of_the_database_stays_matched_while_it_does_not_answer(
    start: Callable[..., Runtime], endpoint: Endpoint
) -> None:
    runtime = start()
    assert runtime.compatibility.match(384)
    endpoint.close()
    assert runtime.compatibility.match(384)


def test_a_model_that_the_role_may_not_claim_is_told_once_with_what_to_do(
    start: Callable[..., Runtime], database: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    migrations.migrate(database, runtime_role=role)
    claim = "function claim_memory_setting(text, text)"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("insert into hermes_pgvector_settings (name, value) values ('person_key', %s)", ["0" * 64])
        connection.execute(f"revoke execute on {claim} from {role}".encode())
    runtime = start(dsn=make_conninfo(database, user=role))
    try:
        for number in range(3):
            assert runtime.accept(TurnTaken(theme="t", user=f"question {number}", assistant="answer"))
            assert runtime.writer.flush(10)
        wait_for(lambda: "hermes-pgvector migrate" in str(runtime.compatibility.usable()))
        (told,) = (record.getMessage() for record in caplog.records if "claim_memory_setting" in record.getMessage())
        assert told.startswith("by words only: the role may not do this (permission denied for function ")
        assert "failed with" not in caplog.text
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"grant execute on {claim} to {role}".encode())
        wait_for(lambda: not isinstance(runtime.compatibility.usable(), str), 30)
    finally:
        release(runtime)
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f"drop owned by {role}".encode())


def test_a_database_that_is_away_is_noticed_by_a_recall_although_nothing_is_to_be_stored(
    start: Callable[..., Runtime], server: Server, database: str
) -> None:
    runtime, name = start(prefetch_budget_s=0.2), conninfo_to_dict(database)["dbname"]
    request = RecallRequest(query="the bridge", scope=Scope("default", ("default",)), limit=5, budget_s=0.5)
    wait_for(lambda: runtime.context.outages.parts["database"]().works)
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        runtime.recall("entries", request)
        wait_for(lambda: bool(runtime.context.outages.parts["database"]().problem))
        assert "role" not in runtime.context.outages.parts["database"]().problem
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    wait_for(lambda: runtime.context.outages.parts["database"]().works)


def test_an_outbox_that_refuses_events_is_noticed_until_it_keeps_them_again(start: Callable[..., Runtime]) -> None:
    runtime = start(spool_max_mb=1)
    assert runtime.context.outages.parts["outbox"]().works
    large = [TurnTaken(user="x" * 600_000, assistant="y", theme="default", session_id="s") for _ in range(4)]
    with psycopg.connect(runtime.database.dsn) as connection:
        connection.execute("LOCK TABLE conversations IN EXCLUSIVE MODE")
        assert False in list(map(runtime.accept, large))
        assert runtime.context.outages.parts["outbox"]().problem
    assert runtime.writer.flush(20)
    assert runtime.accept(large[0])
    assert runtime.context.outages.parts["outbox"]().works


def test_a_background_job_that_fails_is_in_the_log(
    start: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    def mend() -> None:
        raise ValueError("what a user said")

    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        start().in_background(mend).result(10)
    assert "mend failed with ValueError" in caplog.text
    assert "what a user said" not in caplog.text


def test_waiting_reconciliations_do_not_pile_up(start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, busy, seen = start(), threading.Event(), []
    monkeypatch.setattr(runtime.files, "reconcile", lambda theme, session: seen.append((theme, session)))
    runtime.in_background(lambda: seen.append(busy.wait(10)))
    for number in range(100):
        runtime.reconcile(Identity(), f"s{number}")
    busy.set()
    runtime.in_background(lambda: None).result(10)
    assert seen == [True, ("default", "s0")]
    runtime.reconcile(Identity(), "again")
    runtime.in_background(lambda: None).result(10)
    assert seen[2:] == [("default", "again")]


def test_dead_letters_of_unknown_themes_leave_room_for_others_and_are_logged_once(
    start: Callable[..., Runtime], caplog: pytest.LogCaptureFixture
) -> None:
    runtime = start(allowed_themes=["billing"], spool_max_mb=1)
    with caplog.at_level("WARNING", logger="hermes.pgvector"):
        kept = [runtime.accept(TurnTaken(theme="biling", user="x" * 100_000, assistant="yes")) for _ in range(20)]
    assert kept == sorted(kept, reverse=True)
    assert 0 < sum(kept) < 10
    assert sum(str(runtime.dead_letters.folder) in record.getMessage() for record in caplog.records) == 1
    assert runtime.dead_letters.keep("one", "it can never be stored", "x" * 100_000)


def test_an_alias_is_the_theme_it_stands_for_in_hooks_and_for_the_files_of_a_home(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(theme_aliases={"shop": "billing", "default": "ops"}, cross_theme_recall="all")
    asked = Identity(gateway_session_key="Shop", platform="api_server")
    assert runtime.context.theme(asked, None) == runtime.context.theme(asked, "billing") == "billing"
    assert runtime.scope("garden", "shop", "").themes == ("billing",)
    edit(runtime, "the staging host is db-prod-03")
    background(runtime, AGENT)
    assert entries(database) == [("ops", "memory", "the staging host is db-prod-03")]


@pytest.mark.parametrize(
    ("changed", "profile"),
    [
        ({"bench_themes": ["bench-*"]}, "bench-7"),
        ({"off_record": True}, "work"),
        ({"bulk_sync_on_init": False}, "work"),
    ],
)
def test_memory_files_are_not_imported_by_benchmarks_and_read_only_processes(
    start: Callable[..., Runtime], database: str, changed: dict[str, Any], profile: str
) -> None:
    runtime = start(**changed)
    edit(runtime, "the staging host is db-prod-03")
    background(runtime, Identity(agent_identity=profile))
    assert entries(database) == []


def background(runtime: Runtime, identity: Identity) -> None:
    """Reconcile as a session does when it begins, and wait until that has been done and stored."""
    done = threading.Event()
    runtime.reconcile(identity, "s")
    runtime.in_background(done.set)
    assert done.wait(10)
    assert runtime.writer.flush(10)


def test_vectors_wait_for_backfill_when_the_operator_says_so(
    start: Callable[..., Runtime], database: str, endpoint: Endpoint
) -> None:
    runtime = start(embed_on_write=False, heal_interval_s=1)
    runtime.accept(TurnTaken(theme="default", user="no vector for this one", assistant="not yet"))
    assert runtime.writer.flush(10)
    time.sleep(1.5)
    with psycopg.connect(database) as connection:
        count = connection.execute("select count(*) from conversations where embedding is null").fetchone()
    assert count == (2,)


def test_people_and_rooms_have_themes_without_their_ids(start: Callable[..., Runtime]) -> None:
    runtime = start()
    one = Identity(gateway_session_key="agent:main:telegram:dm:4917012345", platform="telegram")
    two = Identity(gateway_session_key="agent:main:telegram:dm:4917099999", platform="telegram")
    themes = {runtime.context.theme(identity, None) for identity in (one, two)}
    assert len(themes) == 2
    assert all(theme.startswith("dm-telegram-") and "4917" not in theme for theme in themes)
    mine = min(themes)
    with pytest.raises(BadArgument):
        runtime.scope("billing", mine, "s")
    assert runtime.scope(mine, "all", "s").own == mine


def test_ambient_recall_keeps_out_what_is_unrelated_and_what_was_just_said(start: Callable[..., Runtime]) -> None:
    runtime = start(min_similarity=0.3)
    runtime.accept(Add(content="the staging database is db-prod-03", **common(runtime)))
    runtime.accept(TurnTaken(theme="default", session_id="now", user="where is the staging database", assistant="wait"))
    runtime.accept(TurnTaken(theme="default", session_id="past", user="staging database moved", assistant="to rack 7"))
    runtime.accept(TurnTaken(theme="default", session_id="past", user="lunch is at noon", assistant="in the canteen"))
    assert runtime.writer.flush(10)
    found = {hit.content for hit in runtime.prefetch.before_turn("default", "the staging database", "now").hits}
    assert "the staging database is db-prod-03" in found
    assert "staging database moved" in found
    assert "where is the staging database" not in found
    assert "lunch is at noon" not in found


def test_turns_of_a_shared_session_from_before_the_conversation_are_recalled(
    start: Callable[..., Runtime],
) -> None:
    runtime = start()
    shared, named = "api-3c1ab95134a57c57", "api-of-a-client"

    def tell(session: str, text: str) -> None:
        runtime.accept(TurnTaken(theme="garden", session_id=session, user=text, assistant=""))
        assert runtime.writer.flush(10)

    def recalled(session: str) -> set[str]:
        return {hit.content for hit in runtime.prefetch.before_turn("garden", "where does the key hang", session).hits}

    for session in (shared, named):
        runtime.prefetch.begin("garden", session)
        tell(session, f"the key hangs in the shed, {session}")
    assert recalled(shared) == {f"the key hangs in the shed, {named}"}
    runtime.prefetch.begin("garden", shared)
    tell(shared, "and where does the key of the shed hang")
    assert recalled(shared) == {f"the key hangs in the shed, {session}" for session in (shared, named)}
    # Another theme has conversations of its own; a session that the client names is one conversation.
    runtime.prefetch.begin("kitchen", shared)
    runtime.prefetch.begin("garden", named)
    assert "and where does the key of the shed hang" not in recalled(shared)
    assert f"the key hangs in the shed, {named}" not in recalled(named)


def test_the_floor_is_measured_once_and_remembered(start: Callable[..., Runtime], endpoint: Endpoint) -> None:
    runtime = start()
    deadline = time.monotonic() + 10
    while runtime.compatibility.floor is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert runtime.compatibility.floor is not None
    asked = endpoint.texts
    release(runtime)
    again = start()
    time.sleep(0.3)
    assert again is not runtime
    assert again.compatibility.floor == runtime.compatibility.floor
    assert endpoint.texts <= asked + 1


@pytest.mark.parametrize("content", ["", "{", "[1]", "[" * 200_000, '{"test at 0.915": "high"}'])
def test_the_floor_is_measured_where_its_cache_is_damaged(
    start: Callable[..., Runtime], tmp_path: Path, content: str
) -> None:
    state = tmp_path / "home" / "pgvector"
    state.mkdir(parents=True)
    (state / "calibration.json").write_text(content)
    runtime = start()
    deadline = time.monotonic() + 10
    while runtime.compatibility.floor is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert runtime.compatibility.floor is not None


def test_a_forked_child_stores_and_recalls_though_threads_of_the_parent_held_its_locks(
    start: Callable[..., Runtime],
) -> None:
    runtime = start()
    held = (
        runtime._recaller,
        runtime.prefetch,
        runtime.writer,
        runtime._spool,
        runtime.database,
        runtime.compatibility,
    )
    with contextlib.ExitStack() as locks:
        for part in held:
            locks.enter_context(part._lock)
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            runtime.accept(TurnTaken(theme="ops", user="the kelp is green", assistant=""))
            request = RecallRequest(query="kelp", scope=runtime.scope("ops", "current", ""), limit=5, budget_s=5)
            stored = runtime.writer.flush(20)
            os._exit(0 if stored and runtime.recall("turns", request).hits else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_another_database_is_another_runtime(
    start: Callable[..., Runtime], make_database: Callable[..., str], database: str
) -> None:
    other = make_database()
    assert start() is not start(dsn=other)
    assert start(dsn=other).database.dsn != start().database.dsn


def test_the_last_release_closes_and_the_next_use_starts_again(start: Callable[..., Runtime]) -> None:
    one = start()
    two = start()
    assert one is two
    release(two)
    assert one.writer.alive()
    release(one)
    deadline = time.monotonic() + 5
    while one.writer.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not one.writer.alive()
    assert one.database.pool_size() == 0
    assert start() is not one


def test_a_process_that_has_just_started_lets_its_hooks_go_first_unless_somebody_waits(
    tmp_path: Path, database: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "START_GAP_S", 60)
    monkeypatch.setattr(writer, "YIELD_S_MAX", 120)
    settings = Settings(dsn=database, embed_url=endpoint.url, embed_model="test")  # type: ignore[arg-type]
    runtime = acquire(settings, tmp_path)
    try:
        runtime.writer.wake()
        runtime.reconcile(AGENT, "s")
        runtime.accept(TurnTaken(theme="ops", user="the kelp is green", assistant=""))
        time.sleep(0.3)
        assert runtime.database.pool_size() == 0
        assert not (tmp_path / "pgvector" / "snapshot.jsonl").exists()
        assert runtime.writer.flush(20)
    finally:
        release(runtime)


def test_the_vocabulary_of_attacks_is_read_before_the_first_recall(
    tmp_path: Path, database: str, endpoint: Endpoint
) -> None:
    suspicion._vocabulary.cache_clear()
    runtime = acquire(Settings(dsn=database, embed_url=endpoint.url, embed_model="test"), tmp_path)  # type: ignore[arg-type]
    try:
        runtime.wake()
        wait_for(lambda: suspicion._vocabulary.cache_info().currsize == 1, 10)
    finally:
        release(runtime)


def test_the_files_are_compared_though_the_session_ends_at_once(
    tmp_path: Path, database: str, endpoint: Endpoint
) -> None:
    runtime = acquire(Settings(dsn=database, embed_url=endpoint.url, embed_model="test"), tmp_path)  # type: ignore[arg-type]
    (tmp_path / "memories").mkdir()
    edit(runtime, "deploys are on Tuesdays")
    runtime.writer.wake()
    runtime.reconcile(AGENT, "s")
    release(runtime)
    assert entries(database) == [("default", "memory", "deploys are on Tuesdays")]


def test_the_end_waits_for_what_is_starting_within_its_own_time(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, go_on, given = start(shutdown_drain_s=1.0), threading.Event(), []
    monkeypatch.setattr(runtime.writer, "stop", given.append)
    runtime.after_start(go_on.wait, 20)
    try:
        release(runtime)
    finally:
        go_on.set()
    assert given == [0.0]
