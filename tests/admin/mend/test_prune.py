"""`prune` on a real database: what it deletes and keeps, killed half way, and beside an agent that writes."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector, started
from waiting import wait_for

from hermes_memory_pgvector.model import Delegated, SessionEnded, TurnTaken
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


def sql(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def fill(dsn: str, count: int, theme: str = "ops", days: int = 100, role: str = "user") -> None:
    sql(
        dsn,
        "insert into conversations (agent_identity, session_id, role, content, ts, search) "
        "select %s, 's', %s, 'row ' || n, now() - make_interval(days => %s) + n * interval '1 ms', '' "
        "from generate_series(1, %s) as n",
        theme,
        role,
        days,
        count,
    )


def held(dsn: str, table: str = "conversations") -> dict[str, int]:
    return dict(sql(dsn, f"select agent_identity, count(*) from {table} group by 1"))


def store(dsn: str, home: Path, *events: Any) -> None:
    database = Database(Settings(dsn=dsn), home)  # type: ignore[arg-type]
    try:
        with database.transaction(10, 10) as connection:
            rows.apply(connection, [prepare(event) for event in events])
    finally:
        database.close()


def test_it_deletes_what_all_conditions_match_and_nothing_else(command: Callable[..., Outcome], database: str) -> None:
    fill(database, 700)
    fill(database, 5, days=1)
    fill(database, 7, role="assistant")
    fill(database, 3, theme="ops-two")
    fill(database, 2, theme="home")
    plan = command("prune", "--theme", "ops", "--before", "30d", "--role", "user", "--dry-run", "--json")
    assert plan.code == 0
    assert [(each["theme"], each["turns"]) for each in plan.document["plan"]] == [("ops", 700)]
    assert held(database) == {"ops": 712, "ops-two": 3, "home": 2}
    done = command("prune", "--theme", "ops", "--before", "30d", "--role", "user", "--yes", "--json")
    assert (done.code, done.document["deleted"], done.document["left"]) == (0, 700, 0)
    assert held(database) == {"ops": 12, "ops-two": 3, "home": 2}
    assert command("prune", "--theme", "ops*", "--yes").code == 0
    assert held(database) == {"home": 2}
    assert command("prune", "--longer-than", "4", "--yes").out.endswith("deleted 2 rows; 0 rows left that match\n")
    assert command("prune", "--before", "1d", "--yes").out == "no row matches\n"
    assert "is it the right theme?" in command("prune", "--theme", "opps", "--before", "1d", "--yes").err


def test_it_asks_and_a_no_changes_nothing(
    command: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(database, 3)
    for answer in ("\n", "n\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        asked = command("prune", "--theme", "ops")
        assert (asked.code, "nothing is changed" in asked.err) == (1, True)
    for wrong in (["--json", "--theme", "ops"], [], ["--yes"], ["--entries", "--role", "user", "--yes"]):
        assert command("prune", *wrong).code == 2
    assert command("prune", "--theme", "ops", "--before", "yesterday", "--yes").code == 2
    assert held(database) == {"ops": 3}
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert command("prune", "--theme", "ops").code == 0
    assert held(database) == {}


def test_entries_go_only_when_asked_can_be_restored_and_those_of_files_stay(
    command: Callable[..., Outcome], database: str
) -> None:
    statement = "insert into memory_entries (agent_identity, home, target, content) values ('ops', %s, 'memory', %s)"
    sql(database, statement, "", "The port is 5433")
    sql(database, statement, "a" * 32, "The port of the file is 5434")
    fill(database, 1)
    assert command("prune", "--theme", "ops", "--yes").code == 0
    assert (held(database), held(database, "memory_entries")) == ({}, {"ops": 2})
    fill(database, 1)
    done = command("prune", "--theme", "ops", "--entries-only", "--yes")
    assert "1 matching entry stays" in done.err
    assert (held(database), held(database, "memory_entries")) == ({"ops": 1}, {"ops": 1})
    (past,) = command("history", "--json").document["history"]
    assert (past["how"], past["content"]) == ("removed", "The port is 5433")
    assert command("undo", str(past["id"])).code == 0
    assert held(database, "memory_entries") == {"ops": 2}


def test_chunks_and_delegations_go_with_their_turns_and_no_replay_brings_them_back(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    turns = [(f"question {number}", f"answer {number}") for number in range(3)]
    taken = [TurnTaken(theme="ops", session_id="s", user=user, assistant=answer) for user, answer in turns]
    child = Delegated(theme="ops", session_id="s", child_session_id="c", task="look it up", result="it is 5433")
    store(database, tmp_path, *taken, child)
    vector = "[" + ",".join(["1"] * 384) + "]"
    sql(
        database,
        "insert into conversation_pieces select agent_identity, id, 0, %s::halfvec from conversations",
        vector,
    )
    assert held(database, "memory_agent_edges") == {"ops": 1}
    assert command("prune", "--theme", "ops", "--yes").code == 0
    assert held(database) == held(database, "conversation_pieces") == held(database, "memory_agent_edges") == {}
    store(database, tmp_path, SessionEnded(theme="ops", session_id="s", turns=(*turns, ("new", "said later"))))
    assert {text for (text,) in sql(database, "select content from conversations")} == {"new", "said later"}
    store(database, tmp_path, *taken)
    assert held(database) == {"ops": 2}, "the ledger knows the events"
    store(database, tmp_path, TurnTaken(theme="ops", session_id="s", user="question 1", assistant="answer 1"))
    assert held(database) == {"ops": 4}, "what is said again is stored"


def test_rows_that_another_transaction_holds_are_left_and_said(command: Callable[..., Outcome], database: str) -> None:
    fill(database, 20)
    with psycopg.connect(database) as other:
        other.execute("select 1 from conversations where agent_identity = 'ops' and content = 'row 7' for update")
        done = command("prune", "--theme", "ops", "--yes", "--json")
    assert (done.code, done.document["deleted"], done.document["left"]) == (3, 19, 1)
    assert command("prune", "--theme", "ops", "--yes").code == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@not_on_citus.triggers
def test_one_that_is_stopped_half_way_can_be_run_again(
    command: Callable[..., Outcome], database: str, tmp_path: Path, how: signal.Signals
) -> None:
    fill(database, 2000)
    fill(database, 5, theme="kept")
    slow = "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(0.005); return old; end'"
    sql(database, slow)
    sql(database, "create trigger slow before delete on conversations for each row execute function slow()")
    process = started(database, tmp_path, "prune", "--theme", "ops", "--yes", "--json")
    wait_for(lambda: held(database)["ops"] < 2000)
    process.send_signal(how)
    out, _ = process.communicate(timeout=60)
    left = held(database)["ops"]
    assert 0 < left < 2000
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert '"interrupted": true' in out
    sql(database, "drop trigger slow on conversations")
    again = command("prune", "--theme", "ops", "--yes", "--json")
    assert (again.code, again.document["deleted"]) == (0, left)
    assert held(database) == {"kept": 5}


def test_an_agent_that_writes_meanwhile_loses_nothing(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    fill(database, 5_000)
    settings = Settings(dsn=database, embed_on_write=False, batch_linger_s=0)  # type: ignore[arg-type]
    runtime = acquire(settings, tmp_path / "agent")
    process = None
    try:
        assert runtime.wait_ready(20)
        process = started(database, tmp_path, "prune", "--theme", "ops", "--before", "30d", "--yes")
        said = 0
        while process.poll() is None or said < 50:
            turn = TurnTaken(theme="ops", session_id="s", user=f"question {said}", assistant=f"answer {said}")
            assert runtime.accept(turn)
            said += 1
            assert runtime.writer.flush(20)
        assert process.wait() == 0
    finally:
        release(runtime)
        if process is not None:
            process.communicate(timeout=60)
    assert held(database) == {"ops": 2 * said}


@pytest.mark.slow
def test_a_hundred_thousand_rows_go_in_batches(command: Callable[..., Outcome], database: str) -> None:
    fill(database, 100_000)
    fill(database, 10, days=1)
    assert command("prune", "--theme", "ops", "--before", "30d", "--dry-run", "--json").document["left"] == 100_000
    done = command("prune", "--theme", "ops", "--before", "30d", "--yes", "--json")
    assert (done.code, done.document["deleted"]) == (0, 100_000)
    assert held(database) == {"ops": 10}
