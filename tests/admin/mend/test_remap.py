"""`remap`: themes renamed and joined while agents of several homes write, read and come back with old events."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector, started
from waiting import wait_for

from hermes_memory_pgvector.model import Add, SessionEnded, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import renames, rows
from hermes_memory_pgvector.store.connection.database import Connection, Database
from hermes_memory_pgvector.store.passages import prepare


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Callable[[str], Runtime]]:
    running: list[Runtime] = []

    def run(name: str) -> Runtime:
        settings = Settings(dsn=database, embed_on_write=False, batch_linger_s=0, heal_interval_s=1)  # type: ignore[arg-type]
        running.append(acquire(settings, tmp_path / name))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield run
    for runtime in running:
        release(runtime)


def sql(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def held(dsn: str, table: str = "conversations") -> dict[str, int]:
    return dict(sql(dsn, f"select agent_identity, count(*) from {table} group by 1"))


def store(dsn: str, home: Path, *events: Any) -> int:
    database = Database(Settings(dsn=dsn), home)  # type: ignore[arg-type]
    try:
        with database.transaction(10, 10) as connection:
            return rows.apply(connection, [prepare(event) for event in events])
    finally:
        database.close()


def turn(number: int, theme: str = "old") -> TurnTaken:
    return TurnTaken(theme=theme, session_id="s", user=f"question {number}", assistant=f"answer {number}")


def entry(content: str, theme: str = "old") -> Add:
    return Add(theme=theme, target="memory", content=content, at=datetime(2026, 1, 2, tzinfo=UTC))


def test_rows_move_and_later_events_of_every_kind_follow(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    known = [turn(1), turn(2), entry("port 5433")]
    store(database, tmp_path, *known, turn(3, "other"))
    ids = sql(database, "select id from conversations order by id")
    plan = command("remap", "Old", "New name", "--dry-run", "--json").document
    assert [(each["theme"], each["turns"], each["entries"]) for each in plan["plan"]] == [
        ("old", 4, 1),
        ("new-name", 0, 0),
    ]
    assert held(database) == {"old": 4, "other": 2}
    done = command("remap", "Old", "New name", "--yes", "--json")
    assert (done.code, done.document["moved"]) == (0, 5)
    assert held(database) == {"new-name": 4, "other": 2}
    assert held(database, "memory_entries") == {"new-name": 1}
    assert held(database, "memory_history") == {}
    assert sql(database, "select id from conversations order by id") == ids
    assert store(database, tmp_path, *known) == 0, "events that come again"
    replay = SessionEnded(theme="old", session_id="s", turns=(("question 1", "answer 1"), ("question 9", "answer 9")))
    assert store(database, tmp_path, replay, turn(4), entry("port 5434")) == 3
    assert held(database) == {"new-name": 8, "other": 2}
    assert held(database, "memory_entries") == {"new-name": 2}
    assert sql(database, "select count(*) from conversations where metadata ? 'linked_account'") == [(0,)]
    assert "old" in command("remap").out
    assert command("list", "--theme", "old", "--json").document["rows"][0]["theme"] == "new-name"


def test_settings_are_named_that_have_the_old_name_and_not_a_part_of_it(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["devops", "on"]')
    monkeypatch.setenv("HERMES_PGVECTOR_CROSS_THEME_RECALL", "all")
    monkeypatch.setenv("HERMES_PGVECTOR_ALSO_RECALL", '{"devops": ["ops"]}')
    assert "name the old theme: also_recall\n" in command("remap", "ops", "operations", "--yes").err
    assert "name the old theme" not in command("remap", "all", "everything", "--yes").err


def test_a_theme_joins_another_and_an_entry_of_both_is_kept_once_with_history(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    store(database, tmp_path, entry("the same"), entry("mine"), entry("the same", "new"), turn(1), turn(1, "new"))
    assert command("remap", "old", "new", "--yes").code == 0
    assert sql(database, "select agent_identity, content from memory_entries order by 2") == [
        ("new", "mine"),
        ("new", "the same"),
    ]
    assert sql(database, "select agent_identity, content, how from memory_history") == [("new", "the same", "moved")]
    assert held(database) == {"new": 4}


def test_names_follow_each_other_and_back(command: Callable[..., Outcome], database: str, tmp_path: Path) -> None:
    store(database, tmp_path, turn(1, "a"))
    assert command("remap", "a", "b", "--yes").code == 0
    assert command("remap", "b", "c", "--yes").code == 0
    store(database, tmp_path, turn(2, "a"), turn(3, "b"))
    assert held(database) == {"c": 6}
    assert command("remap", "x", "a", "--yes").code == 1, "a is an old name"
    assert command("remap", "c", "a", "--yes").code == 0
    store(database, tmp_path, turn(4, "b"), turn(5, "c"), turn(6, "a"))
    assert held(database) == {"a": 12}
    assert command("remap", "--release", "c").code == 0
    store(database, tmp_path, turn(7, "c"))
    assert held(database) == {"a": 12, "c": 2}
    assert command("remap", "--release", "c").code == 2


PERSON, ACCOUNT, ROOM = "dm-person-0123456789abcdef", "dm-telegram-0123456789abcdef", "group-telegram-0123456789abcdef"


def test_what_would_show_private_rows_to_others_is_refused(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    sql(database, f"insert into memory_person_links values ('{ACCOUNT}', '{PERSON}'), ('profile', '{PERSON}')")
    names = ((ROOM, "ops"), ("ops", ROOM), (ACCOUNT, ROOM), (PERSON, ROOM), (ROOM, PERSON), ("profile", "ops"))
    for old, new in names:
        refused = command("remap", old, new, "--yes")
        assert (refused.code, refused.out) == (1, ""), (old, new)
    for wrong in (
        ["ops", "OPS", "--yes"], ["ops"], ["ops", "new", "--json"], ["a", "b", "--release", "c"], ["", "new", "--yes"],
        [" ", "new", "--yes"], ["ops", " ", "--yes"], ["--release", ""],
    ):  # fmt: skip
        assert command("remap", *wrong).code == 2, wrong
    assert command("remap").out == "no theme was renamed\n"


def test_a_name_whose_theme_is_linked_later_leads_to_the_person(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    assert command("remap", "old", "new", "--yes").code == 0
    sql(database, f"insert into memory_person_links values ('new', '{PERSON}')")
    store(database, tmp_path, turn(1))
    assert held(database) == {PERSON: 2}
    assert sql(database, "select distinct metadata ->> 'linked_account' from conversations") == [("new",)]


def test_agents_of_all_homes_go_on_under_the_new_name_and_lose_nothing(
    command: Callable[..., Outcome], database: str, start: Callable[[str], Runtime]
) -> None:
    one, two = start("one"), start("two")
    said = 0

    def say(runtime: Runtime) -> None:
        nonlocal said
        assert runtime.accept(turn(said))
        said += 1

    for _ in range(20):
        say(one)
    assert one.writer.flush(20)
    say(two)
    assert command("remap", "old", "new", "--yes").code == 0
    for runtime in (one, two):
        wait_for(lambda runtime=runtime: runtime.own("old")[0] == "new")
        say(runtime)
        assert runtime.writer.flush(20)
    assert held(database) == {"new": 2 * said}
    assert len(sql(database, "select distinct content from conversations")) == 2 * said


def test_what_an_interrupted_command_left_is_read_and_moved(
    command: Callable[..., Outcome], database: str, tmp_path: Path, start: Callable[[str], Runtime]
) -> None:
    store(database, tmp_path, *(turn(number) for number in range(40)))
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("insert into memory_renames values ('old', 'new')")
    settings = Settings(dsn=database)  # type: ignore[arg-type]
    opened = Database(settings, tmp_path)

    def move(connection: Connection) -> int:
        return renames.move_unmoved(connection, 16)

    try:
        with opened.transaction(10, 10) as connection:
            assert move(connection) == 16
        assert held(database) == {"new": 16, "old": 64}
        assert start("one").own("new") == ("new", "old")
        assert start("one").own("old") == ("new", "old")
        assert command("remap", "old", "new", "--yes").code == 0
        assert held(database) == {"new": 80}
        with opened.transaction(10, 10) as connection:
            assert move(connection) == 0
    finally:
        opened.close()


@not_on_citus.triggers
def test_one_that_is_killed_half_way_can_be_run_again(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    store(database, tmp_path, *(turn(number) for number in range(500)))
    sql(
        database,
        "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.005); return old; end'",
    )
    sql(database, "create trigger slow before delete on conversations for each row execute function slow()")
    process = started(database, tmp_path, "remap", "old", "new", "--yes")
    wait_for(lambda: "new" in held(database))
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert 0 < held(database)["old"] < 1000
    sql(database, "drop trigger slow on conversations")
    store(database, tmp_path, turn(500))
    assert command("remap", "old", "new", "--yes").code == 0
    assert held(database) == {"new": 1002}


@pytest.mark.slow
def test_a_hundred_thousand_rows_move(command: Callable[..., Outcome], database: str) -> None:
    sql(
        database,
        "insert into conversations (agent_identity, session_id, role, content, search) "
        "select 'old', 's', 'user', 'row ' || n, '' from generate_series(1, 100000) as n",
    )
    done = command("remap", "old", "new", "--yes", "--json")
    assert (done.code, done.document["moved"]) == (0, 100_000)
    assert held(database) == {"new": 100_000}


def test_what_was_erased_under_any_name_does_not_come_back_under_another(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    one, two, other = turn(1, "a"), turn(2, "a"), turn(2, "c")
    store(database, tmp_path, turn(8, "a"), turn(9, "b"))
    erase = ("erase", "--yes")
    assert command(*erase, "--theme", "a").code in (0, 3)
    assert command("remap", "a", "b", "--yes").code == 0
    waiting = turn(3, "a")
    assert command(*erase, "--theme", "b").code in (0, 3)
    assert command("remap", "b", "c", "--yes").code == 0
    store(database, tmp_path, one, two, waiting, other)
    assert held(database) == {"c": 2}, "only what was said under c"
