"""Dead letters and orphaned spools, settled by an operator on a real database."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from agents import Agent, stored, turn
from commandline import Outcome, hermes_pgvector
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import Add, Event, Remove
from hermes_memory_pgvector.outbox.codec import encode
from hermes_memory_pgvector.outbox.dead_letters import DeadLetters
from hermes_memory_pgvector.outbox.orphans import orphans
from hermes_memory_pgvector.outbox.spool import Spool

DEAD_DSN = "postgresql://somebody@127.0.0.1:9/nowhere"
SECRET = "swordfish"

Run = Callable[..., Outcome]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def run(home: Home, database: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Run `hermes-pgvector spool …` for the home."""
    endpoint = Endpoint()
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_URL", endpoint.url)
    monkeypatch.setenv("HERMES_PGVECTOR_EMBED_MODEL", "words")
    monkeypatch.setenv("HERMES_PGVECTOR_CONNECT_TIMEOUT_S", "1")
    yield lambda *arguments: hermes_pgvector("--home", str(home.path), "--json", "spool", *arguments)
    endpoint.close()


@pytest.fixture
def agent(home: Home, run: Run) -> Iterator[Callable[..., Agent]]:
    """Start an agent of the home whose database is dead."""
    running: list[Agent] = []

    def start(**settings: Any) -> Agent:
        running.append(Agent(home.path, str(len(running)), **{"dsn": DEAD_DSN, "shutdown_drain_s": 0, **settings}))
        return running[-1]

    yield start
    for one in running:
        one.end()


def put_aside(home: Home, event: Event, reason: str = "the theme is not in allowed_themes") -> str:
    assert DeadLetters(home.state).keep(event.id, reason, encode(event).decode("ascii"))
    return event.id


def texts(*names: str) -> dict[str, int]:
    return {side: 1 for name in names for side in (f"{name}, asked", f"{name}, answered")}


def themes_stored(dsn: str) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("select distinct agent_identity from conversations order by 1").fetchall()


def test_the_list_shows_no_text_of_a_user(home: Home, run: Run) -> None:
    event = turn(SECRET, "billing")
    put_aside(home, event)
    DeadLetters(home.state).keep("damaged-x-1-0", "the record in the spool is damaged", f"\x00{SECRET}\xff")
    (DeadLetters(home.state).folder / "torn.json").write_text('{"reason": "torn')
    shown = run("list")
    plain = hermes_pgvector("--home", str(home.path), "spool", "list")
    assert (shown.code, plain.code) == (0, 0)
    listed = {row["id"]: row for row in shown.document["aside"]}
    assert {name: row["kind"] for name, row in listed.items()} == {
        event.id: "TurnTaken",
        "damaged-x-1-0": "damaged",
        "torn": "damaged",
    }
    row = listed[event.id]
    assert (row["theme"], row["at"]) == ("billing", event.at.isoformat())
    assert row["bytes"] == (DeadLetters(home.state).folder / f"{event.id}.json").stat().st_size
    assert SECRET not in shown.out + shown.err + plain.out + plain.err


def test_the_ids_of_a_narrow_list_are_long_enough_to_show_an_event(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [put_aside(home, turn(text, "billing")) for text in ("one", "two")]
    for number in range(2):
        DeadLetters(home.state).keep(f"damaged-4f-100-{number}", "the record in the spool is damaged", "x")
    listed = hermes_pgvector("--home", str(home.path), "spool", "list")
    # A reason goes on in the next line, which is indented.
    called = [line.split()[0] for line in listed.out.splitlines()[1:-1] if line[0] != " "]
    found = [hermes_pgvector("--home", str(home.path), "spool", "show", name) for name in called]
    assert {one.document["id"] for one in found} == {*names, "damaged-4f-100-0", "damaged-4f-100-1"}


def test_one_is_shown_whole_and_without_control_characters(home: Home, run: Run) -> None:
    name = put_aside(home, turn(f"{SECRET} \x1b[2J \x9b5m \u202e \udc80 \x7f two\nlines"))
    shown = hermes_pgvector("--home", str(home.path), "spool", "show", name[:8])
    assert SECRET in shown.out
    assert all(char.isprintable() or char == "\n" for char in shown.out)
    assert "\\u001b[2J \\u009b5m \\u202e \\udc80 \\u007f two\\nlines" in shown.out
    assert run("show", name).document["event"]["user"].startswith(SECRET)


@pytest.mark.parametrize("name", ["nothing", "../../home_id", "abc", ""])
def test_an_unknown_id_is_wrong_usage(home: Home, run: Run, name: str) -> None:
    put_aside(home, turn("one"))
    for action in (["show"], ["retry"], ["drop"]):
        assert run(*action, name).code == 2
    assert len(DeadLetters(home.state).ids()) == 1


def test_the_start_of_an_id_must_name_one_event(home: Home, run: Run) -> None:
    DeadLetters(home.state).keep("abcdef1", "r", "x")
    DeadLetters(home.state).keep("abcdef2", "r", "x")
    refused = run("drop", "abcdef", "--yes")
    assert refused.code == 2
    assert "give more of the id" in refused.err
    assert run("drop", "abcdef2", "--yes").document == {"dropped": ["abcdef2"]}
    assert DeadLetters(home.state).ids() == ["abcdef1"]


def test_a_dead_letter_is_stored_once_its_theme_is_allowed(
    home: Home, run: Run, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["ops"]')
    name = put_aside(home, turn("one", "biling"))
    refused = run("retry", name)
    assert refused.code == 1
    assert list(refused.document["refused"]) == [name]
    assert "allowed_themes" in refused.err
    assert DeadLetters(home.state).ids() == [name]
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["ops", "biling"]')
    settled = run("retry", name)
    assert settled.code == 0
    assert settled.document["settled"] == [name]
    assert stored(database) == texts("one")
    assert DeadLetters(home.state).ids() == []
    assert list(home.spool.glob("[!.]*")) == []


def test_dead_letters_can_be_stored_under_another_theme(
    home: Home, run: Run, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_ALLOWED_THEMES", '["billing"]')
    for word in ("one", "two"):
        put_aside(home, turn(word, "biling"))
    assert run("retry", "--all", "--theme", "dm-telegram-0123456789abcdef").code == 2
    assert run("retry", "--all", "--theme", "other").code == 1
    assert stored(database) == {}
    assert run("retry", "--all", "--theme", "Billing").code == 0
    assert stored(database) == texts("one", "two")
    assert themes_stored(database) == [("billing",)]


def test_a_retry_stores_nothing_twice(home: Home, run: Run, database: str) -> None:
    event = turn("one")
    for _ in range(3):
        name = put_aside(home, event)
        assert run("retry", name).code == 0
    assert stored(database) == texts("one")


def test_no_other_process_takes_over_what_is_retried(home: Home, run: Run, database: str) -> None:
    """One of an earlier release may not be able to read it, and would make a dead letter of it again."""
    name = put_aside(home, Add(theme="ops", target="memory", content="tea", tags=("t",)))
    done, taken = threading.Event(), list[Path | None]()

    def look() -> None:
        while not done.is_set():
            for orphan in orphans(home.spool):
                taken.append(orphan.folder)
                orphan.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        outcome = run("retry", name)
    finally:
        done.set()
        thread.join()
    assert (outcome.code, outcome.document["settled"], taken) == (0, [name], [])
    with psycopg.connect(database) as connection:
        assert connection.execute("select content, tags from memory_entries").fetchall() == [("tea", ["t"])]


def test_an_event_that_fails_again_is_a_dead_letter_again_and_the_others_are_stored(
    home: Home, run: Run, database: str
) -> None:
    bad = Add(theme="ops", home="h", target="nowhere", content="x")  # type: ignore[arg-type]
    put_aside(home, bad, "target")
    put_aside(home, turn("one"))
    outcome = run("retry", "--all")
    assert outcome.code == 1
    assert list(outcome.document["refused"]) == [bad.id]
    assert len(outcome.document["settled"]) == 1
    assert "nowhere" in outcome.err
    assert DeadLetters(home.state).ids() == [bad.id]
    assert stored(database) == texts("one")


def test_changes_are_stored_in_the_order_in_which_they_were_made(home: Home, run: Run, database: str) -> None:
    common: dict[str, Any] = {"theme": "ops", "home": home.id, "target": "memory"}
    # By their ids the removal comes first.
    added = Add(content="the port is 5432", id="f" * 32, **common)
    removed = Remove(previous="the port is 5432", id="0" * 32, **common)
    for event in (removed, added):
        put_aside(home, event)
    assert run("retry", "--all").code == 0
    with psycopg.connect(database) as connection:
        assert connection.execute("select content from memory_entries").fetchall() == []


def test_a_damaged_dead_letter_stays(home: Home, run: Run) -> None:
    DeadLetters(home.state).keep("damaged-x-1-0", "the record in the spool is damaged", "\x00\xff")
    outcome = run("retry", "--all")
    assert outcome.code == 1
    assert "damaged" in outcome.document["refused"]["damaged-x-1-0"]
    assert len(DeadLetters(home.state).ids()) == 1


def test_what_is_deleted_is_shown_first(home: Home, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    one, *others = [put_aside(home, turn(word)) for word in ("one", "two", "three")]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n\ny\n"))
    for chosen in (one, "--all"):
        refused = hermes_pgvector("--home", str(home.path), "spool", "drop", chosen)
        assert refused.code == 1
        assert one[:12] in refused.out
        assert len(DeadLetters(home.state).ids()) == 3
    done = hermes_pgvector("--home", str(home.path), "spool", "drop", one)
    assert done.code == 0
    assert done.err == "Delete 1 event for good? [y/N]: "
    assert sorted(DeadLetters(home.state).ids()) == sorted(others)


def test_all_are_deleted_without_a_question_with_yes(home: Home, run: Run) -> None:
    for word in ("one", "two", "three"):
        put_aside(home, turn(word))
    refused = run("drop", "--all")
    assert (refused.code, refused.out) == (2, "")
    assert len(run("drop", "--all", "--yes").document["dropped"]) == 3
    assert DeadLetters(home.state).ids() == []


def test_flush_stores_the_events_of_killed_agents(
    home: Home, run: Run, agent: Callable[..., Agent], database: str
) -> None:
    for count in (3, 4):
        killed = agent()
        killed.take(count)
        killed.kill()
    listed = run("list").document["spools"]
    assert sorted((spool["alive"], spool["events"]) for spool in listed) == [(False, 3), (False, 4)]
    outcome = run("flush")
    assert outcome.code == 0
    assert outcome.document["stored"] == 7
    assert sum(stored(database).values()) == 14
    assert list(home.spool.glob("[!.]*")) == []
    assert run("flush").document["stored"] == 0


def test_flush_leaves_the_spool_of_a_running_agent_alone(home: Home, run: Run, agent: Callable[..., Agent]) -> None:
    living = agent()
    living.take(3)
    outcome = run("flush")
    assert (outcome.code, outcome.document["stored"], outcome.document["living"]) == (0, 0, 3)
    assert "running processes" in outcome.err
    # Its heartbeat, which has the id, is written once its writer has begun.
    wait_for(lambda: [spool["pid"] for spool in run("list").document["spools"]] == [living.pid])


def test_several_commands_at_once_store_everything_once(
    home: Home, run: Run, agent: Callable[..., Agent], database: str
) -> None:
    for count in range(1, 7):
        killed = agent()
        killed.take(count)
        killed.kill()
    arguments = [sys.executable, "-P", "-m", "hermes_memory_pgvector", "--home", str(home.path), "spool", "flush"]
    beside = [subprocess.Popen(arguments, cwd="/", stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in "ab"]
    living = agent(dsn=database, adopt_interval_s=1)
    living.take(1)
    outcome = run("flush")
    assert outcome.code in (0, 1)
    assert all(one.wait(60) in (0, 1) for one in beside)
    living.end()
    assert run("flush").code == 0
    found = stored(database)
    assert len(found) == 2 * (6 + 5 + 4 + 3 + 2 + 1 + 1)
    assert set(found.values()) == {1}
    assert list(home.spool.glob("[!.]*")) == []


def test_without_a_database_nothing_is_lost_and_the_command_ends_in_time(
    home: Home, run: Run, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Spool(home.spool, bytes_max=1 << 20, window_max=9)
    assert left.append(turn("left"))
    left.close()
    name = put_aside(home, turn("one"))
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", DEAD_DSN)
    flushed, tried = run("flush", "--wait", "1"), run("retry", name, "--wait", "1")
    assert (flushed.code, tried.code) == (1, 1)
    assert (flushed.document["left"], tried.document["waiting"]) == (1, [name])
    assert "Postgres does not answer" in flushed.err
    assert "spool flush" in tried.err
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    assert run("flush").document["stored"] == 2
    assert stored(database) == texts("left", "one")


def test_the_cause_is_named_when_the_time_is_shorter_than_an_attempt_to_connect(
    home: Home, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Spool(home.spool, bytes_max=1 << 20, window_max=9)
    assert left.append(turn("left"))
    left.close()
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", DEAD_DSN)
    monkeypatch.setenv("HERMES_PGVECTOR_CONNECT_TIMEOUT_S", "30")
    flushed, tried = run("flush", "--wait", "2"), run("retry", put_aside(home, turn("one")), "--wait", "2")
    for outcome in (flushed, tried):
        assert outcome.code == 1
        assert "Postgres does not answer" in outcome.document["problem"]


def test_without_the_schema_events_stay_and_the_command_to_run_is_named(
    home: Home, run: Run, empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = put_aside(home, turn("one"))
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", empty_database)
    outcome = run("retry", name, "--wait", "1")
    assert (outcome.code, outcome.document["waiting"]) == (1, [name])
    assert "hermes-pgvector migrate" in outcome.err
    assert run("flush", "--wait", "1").document["left"] == 1


def test_a_torn_record_is_a_dead_letter_that_doctor_sees(home: Home, run: Run, database: str) -> None:
    left = Spool(home.spool, bytes_max=1 << 20, window_max=9)
    assert left.append(turn("one"))
    assert left.append(turn(SECRET))
    folder = left.folder
    assert folder is not None
    left.close()
    log = folder / "00000001.log"
    os.truncate(log, log.stat().st_size - 10)
    outcome = run("flush")
    assert outcome.document["set_aside"] == 1
    assert stored(database) == texts("one")
    assert [row["kind"] for row in run("list").document["aside"]] == ["damaged"]
    told = hermes_pgvector("--home", str(home.path), "--json", "doctor")
    check = next(check for check in told.document["checks"] if check["name"] == "dead letters")
    assert check["verdict"] == "warning"
    assert "spool list" in check["remedy"]
    assert SECRET not in told.out


def test_without_a_writable_spool_a_dead_letter_stays(
    home: Home, run: Run, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("a file")
    monkeypatch.setenv("HERMES_PGVECTOR_SPOOL_DIR", str(tmp_path / "taken"))
    name = put_aside(home, turn("one"))
    outcome = run("retry", name)
    assert outcome.code == 1
    assert "cannot be written" in outcome.document["refused"][name]
    assert len(DeadLetters(home.state).ids()) == 1
    assert stored(database) == {}


def test_a_second_command_fails_at_once(home: Home, run: Run) -> None:
    put_aside(home, turn("one"))
    with DeadLetters(home.state).locked():
        outcome = run("drop", "--all", "--yes")
    assert outcome.code == 1
    assert "another command" in outcome.err
    assert len(DeadLetters(home.state).ids()) == 1


def test_nothing_to_do_is_success(home: Home, run: Run) -> None:
    for arguments in (["list"], ["retry", "--all"], ["drop", "--all", "--yes"], ["flush"]):
        assert run(*arguments).code == 0
