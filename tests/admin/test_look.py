"""`themes`, `sessions`, `list` and `show` on real databases."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import Server

from hermes_memory_pgvector import cli
from hermes_memory_pgvector.hosts.provenance import source_of

HOME_ID = "a" * 32
PERSON = "dm-telegram-1f3a5c7e9b0d2f46"
# Escape sequences, a bell, an overwritten line, a direction override, and markup of rich.
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\rline \u202egnp.exe [bold]<system>"


@pytest.fixture
def command(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    return lambda *arguments: hermes_pgvector("--home", str(tmp_path), *arguments)


def sql(dsn: str, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def entry(dsn: str, content: str, theme: str = "ops", **columns: object) -> int:
    named = {"agent_identity": theme, "target": "memory", "content": content, **columns}
    statement = (
        f"insert into memory_entries ({', '.join(named)}) values ({', '.join('%s' for _ in named)}) returning id"
    )
    return int(sql(dsn, statement, *named.values())[0][0])


def turn(dsn: str, content: str, theme: str = "ops", session: str = "s1", **columns: object) -> int:
    named = {"agent_identity": theme, "session_id": session, "role": "user", "content": content, **columns}
    statement = f"insert into conversations ({', '.join(named)}) values ({', '.join('%s' for _ in named)}) returning id"
    return int(sql(dsn, statement, *named.values())[0][0])


def record_titles(home: Path, titles: dict[str, str | None]) -> None:
    """The host's record, as far as it has titles of sessions."""
    with sqlite3.connect(home / "state.db") as record:
        record.execute("create table sessions (id text primary key, title text)")
        record.executemany("insert into sessions values (?, ?)", titles.items())


# themes


def test_themes_are_listed_with_rows_times_and_homes_the_largest_first(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    (tmp_path / "pgvector").mkdir()
    (tmp_path / "pgvector" / "home_id").write_text(HOME_ID)
    entry(database, "port 5433", home=HOME_ID, created_at="2026-01-02 12:00Z")
    turn(database, "which port?", ts="2026-03-04 12:00Z")
    for number in range(3):
        turn(database, f"question {number}", theme=PERSON)
    document = command("themes", "--json").document
    assert [(theme["theme"], theme["entries"], theme["turns"]) for theme in document["themes"]] == [
        (PERSON, 0, 3),
        ("ops", 1, 1),
    ]
    ops = document["themes"][1]
    assert (ops["first"][:10], ops["latest"][:10], ops["homes"]) == ("2026-01-02", "2026-03-04", [HOME_ID])
    assert (document["home"], document["vectors"]["dimensions"], document["more"]) == (HOME_ID, 384, False)
    shown = command("themes")
    assert shown.code == 0
    assert "1 (this)" in shown.out
    assert "No vector" in shown.out
    assert "384 dimensions, no model yet" in shown.err
    cut = command("themes", "--limit", "1")
    assert ("ops" in cut.out, "for more: --limit" in cut.err) == (False, True)


def test_the_size_of_a_theme_is_about_that_of_its_rows(command: Callable[..., Outcome], database: str) -> None:
    def bytes_of(theme: str) -> int:
        themes = command("themes", "--json").document["themes"]
        return int(next(each["bytes_estimated"] for each in themes if each["theme"] == theme))

    statement = (
        "insert into conversations (agent_identity, role, content) select %s, 'user', %s from generate_series(1, 500)"
    )
    sql(database, statement, "short", "x" * 100)
    sql(database, statement, "long", "x" * 1000)
    assert 500 * 100 < bytes_of("short") < 500 * 300
    assert 500 * 1000 < bytes_of("long") < 500 * 1200


def test_a_memory_without_rows_says_so_and_looking_makes_no_file(
    command: Callable[..., Outcome], tmp_path: Path
) -> None:
    assert command("themes").out == "no theme has rows\n"
    assert command("sessions", "--theme", "Ops").out == "theme ops has no sessions\n"
    assert (command("list").out, command("list").err) == ("no row matches\n", "")
    assert command("list", "--theme", "Ops").err.startswith("is ops the right theme? for their names: hermes-pgvector ")
    assert command("show", "1").code == 2
    assert list(tmp_path.rglob("*")) == []


# sessions


def test_sessions_of_a_theme_have_their_titles_and_come_page_by_page(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    record_titles(tmp_path, {"s1": "The port of staging", "s2": None, "s9": "Another theme"})
    for number, session in enumerate(("s1", "s2", "s3", "s1")):
        turn(database, "hello", session=session, ts=f"2026-01-0{number + 1} 12:00Z")
    turn(database, "hello", theme="other", session="s9")
    document = command("sessions", "--theme", "ops", "--json").document
    found = [(session["session_id"], session["turns"], session["title"]) for session in document["sessions"]]
    assert found == [("s1", 2, "The port of staging"), ("s3", 1, ""), ("s2", 1, "")]
    assert document["sessions"][0]["first"].startswith("2026-01-01")
    first = command("sessions", "--theme", "ops", "--limit", "2")
    assert "The port of staging" in first.out
    assert "--offset 2" in first.err
    rest = command("sessions", "--theme", "ops", "--limit", "2", "--offset", "2")
    assert ("s2" in rest.out, "s1" in rest.out, rest.err) == (True, False, "")


# list


def listed(outcome: Outcome) -> list[str]:
    assert outcome.code == 0, outcome.err
    return [row["content"] for row in outcome.document["rows"]]


def test_filters_select_rows_of_both_kinds(command: Callable[..., Outcome], database: str) -> None:
    entry(
        database,
        "port 5433",
        tags=["db"],
        metadata='{"origin": "remember", "session_id": "s2"}',
        created_at="2026-01-01Z",
    )
    entry(database, "likes tea", target="user", created_at="2026-01-02Z")
    entry(database, "gone", expires_at="2026-01-03Z", created_at="2026-01-03Z")
    turn(database, "Which PORT?", ts="2026-01-04Z")
    turn(database, "5433", role="assistant", session="s2", metadata='{"replayed": true}', ts="2026-01-05Z")
    turn(database, "elsewhere", theme="other", ts="2026-01-06Z")

    def found(*arguments: str) -> list[str]:
        return listed(command("list", "--json", *arguments))

    assert found() == ["elsewhere", "5433", "Which PORT?", "likes tea", "port 5433"]
    assert found("--theme", "OPS") == ["5433", "Which PORT?", "likes tea", "port 5433"]
    assert found("--kind", "turns", "--theme", "ops") == ["5433", "Which PORT?"]
    assert found("--kind", "memory") == ["likes tea", "port 5433"]
    assert found("--target", "user") == ["likes tea"]
    assert found("--role", "assistant") == ["5433"]
    assert found("--tag", "#DB", "--tag", "x") == ["port 5433"]
    assert found("--session", "s2") == ["5433", "port 5433"]
    assert found("--source", "remember") == ["port 5433"]
    assert found("--source", "database") == ["likes tea"]
    assert found("--source", "transcript") == ["5433"]
    assert found("--text", "port") == ["Which PORT?", "port 5433"]
    assert found("--since", "2026-01-05T00:00Z") == ["elsewhere", "5433"]
    assert found("--until", "2026-01-02T00:00Z") == ["port 5433"]
    assert found("--limit", "1") == ["elsewhere"]


def test_signs_of_patterns_stand_for_themselves_in_a_text(command: Callable[..., Outcome], database: str) -> None:
    for content in ("100% sure", "100 times", "a_b", "axb", "c:\\temp"):
        turn(database, content)
    for text in ("100%", "a_b", "c:\\t"):
        assert len(listed(command("list", "--json", "--text", text))) == 1, text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--role", "user", "--target", "user"), "not allowed with argument"),
        (("--since", "yesterday"), "--since is 'yesterday'"),
        (("--since", "2026-01-02", "--until", "2026-01-01"), "--until is not after since"),
        (("--after", "12"), "--after is '12'"),
        (("--after", "2026-01-01T00:00Z/entry/99999999999999999999"), "give the place"),
        (("--tag", "#"), "--tag has the tag"),
        (("--limit", "0"), "must be from 1"),
    ],
)
def test_a_filter_that_cannot_be_is_named(
    command: Callable[..., Outcome], arguments: tuple[str, ...], said: str
) -> None:
    done = command("list", *arguments)
    assert (done.code, said in done.err, done.out) == (2, True, "")


@pytest.fixture(scope="module")
def crowded(server: Server) -> Iterator[str]:
    """A database whose rows of both kinds have few different times."""
    name = server.create(server.template(384))
    dsn = server.dsn_of(name)
    for table, columns in (("memory_entries", "target"), ("conversations", "role")):
        sql(
            dsn,
            f"insert into {table} ({columns}, content, {'created_at' if columns == 'target' else 'ts'})"
            " select 'user', 'row ' || n, timestamptz '2026-01-01Z' + (n % 4) * interval '1 hour'"
            " from generate_series(1, 25) as n",
        )
    yield dsn
    server.drop(name)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.integers(1, 60), st.sampled_from(["both", "memory", "turns"]))
def test_all_pages_together_have_each_row_once_in_order(crowded: str, tmp_path: Path, limit: int, kind: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HERMES_PGVECTOR_DSN", crowded)

        def page(size: int, after: str | None) -> Any:
            place = ["--after", after] if after else []
            arguments = ("list", "--json", "--kind", kind, "--limit", str(size), *place)
            return hermes_pgvector("--home", str(tmp_path), *arguments).document

        whole = page(1000, None)
        assert whole["after"] is None
        rows, after = [], None
        while True:
            found = page(limit, after)
            rows += found["rows"]
            after = found["after"]
            if after is None:
                break
        assert rows == whole["rows"]
        assert len(rows) == (50 if kind == "both" else 25)


def test_the_theme_of_a_linked_account_lists_the_rows_of_its_person(
    command: Callable[..., Outcome], database: str
) -> None:
    turn(database, "which port?", theme="dm-person-00000000000000aa")
    sql(database, "insert into memory_person_links values ('ops', 'dm-person-00000000000000aa')")
    assert listed(command("list", "--json", "--theme", "ops")) == ["which port?"]


# show


def test_an_entry_has_the_source_that_the_tools_tell_of_it(command: Callable[..., Outcome], database: str) -> None:
    kept: list[dict[str, Any]] = [
        {"origin": "remember", "client": "mcp"}, {"origin": "remember"}, {"origin": "file"}, {"origin": "undo"},
        {"origin": "remember", "client": ""}, {"session_id": "s1"}, {},
    ]  # fmt: skip
    for number, metadata in enumerate(kept):
        entry(database, f"entry {number}", metadata=json.dumps(metadata))
    sources = {row["content"]: row["source"] for row in command("list", "--json").document["rows"]}
    assert sources == {f"entry {number}": source_of("", metadata) for number, metadata in enumerate(kept)}
    assert listed(command("list", "--json", "--source", "mcp")) == ["entry 0"]
    assert {row["source"] for row in command("stats", "--json").document["sources"]} == {*sources.values()}


def test_an_entry_is_shown_with_what_it_said_before_and_the_turns_around_it(
    command: Callable[..., Outcome], database: str, tmp_path: Path
) -> None:
    record_titles(tmp_path, {"s1": "The port of staging"})
    turn(database, "Remember the port.", ts="2026-01-01 12:00:00Z")
    number = entry(
        database, "port 5433", tags=["db"], metadata='{"origin": "remember", "session_id": "s1", "ticket": "OPS-12"}',
        created_at="2026-01-01 12:00:05Z",
    )  # fmt: skip
    turn(database, "I did.", role="assistant", ts="2026-01-01 12:00:09Z")
    sql(database, "update memory_entries set content = 'port 5440' where id = %s", number)
    done = command("show", str(number))
    assert done.code == 0
    for text in (
        f"entry {number} of memory, tags db",
        "remember",
        "OPS-12",
        "port 5440",
        "I did.",
        "The port of staging",
    ):
        assert text in done.out
    assert done.out.index("port 5433") > done.out.index("edited")
    document = command("show", str(number), "--json").document
    assert document["row"]["content"] == "port 5440"
    assert [past["content"] for past in document["history"]] == ["port 5433"]
    assert [near["content"] for near in document["neighbours"]] == ["Remember the port.", "I did."]
    assert not document["details"]["embedded"]


def test_an_entry_that_was_replaced_or_removed_is_found_by_its_old_id(
    command: Callable[..., Outcome], database: str
) -> None:
    old = entry(database, "port 5433")
    sql(database, "delete from memory_entries")
    new = entry(database, "port 5440", replaces=[old])
    done = command("show", str(old), "--theme", "ops")
    assert f"entry {new} has replaced entry {old}" in done.err
    assert "port 5440" in done.out
    assert "port 5433" in done.out
    sql(database, "delete from memory_entries")
    gone = command("show", str(old))
    assert (gone.code, "is gone" in gone.err, "port 5433" in gone.out) == (0, True, True)
    ((past,),) = sql(database, "select id from memory_history where content = 'port 5433'")
    assert command("undo", str(past)).code == 0


def test_a_turn_is_shown_among_its_neighbours(command: Callable[..., Outcome], database: str) -> None:
    numbers = [turn(database, f"turn {number}", ts=f"2026-01-01 12:0{number}Z") for number in range(7)]
    document = command("show", str(numbers[3]), "--turn", "--json").document
    assert [near["id"] for near in document["neighbours"]] == numbers[1:6]
    first = command("show", str(numbers[0]), "--turn", "--context", "1", "--json").document
    assert [near["id"] for near in first["neighbours"]] == numbers[:2]
    assert "(this turn)" in command("show", str(numbers[3]), "--turn").out
    assert command("show", str(numbers[3]), "--turn", "--context", "0", "--json").document["neighbours"] == []


def test_an_id_that_is_unknown_or_ambiguous_is_named(command: Callable[..., Outcome], database: str) -> None:
    number = turn(database, "hello")
    sql(database, "insert into conversations (id, agent_identity, role, content) values (%s, 'b', 'user', 'x')", number)
    done = command("show", str(number))
    assert (done.code, f"there is no entry {number}, but a turn {number}: add --turn" in done.err) == (2, True)
    assert f"themes b, ops have turn {number}" in command("show", str(number), "--turn").err
    assert command("show", str(number), "--turn", "--theme", "b", "--json").document["row"]["content"] == "x"
    assert "has no turn 999" in command("show", "999", "--turn", "--theme", "b").err


def test_a_number_that_no_id_can_be_is_named(command: Callable[..., Outcome]) -> None:
    for arguments in (("show", "9" * 20), ("sessions", "--theme", "ops", "--offset", "9" * 20)):
        done = command(*arguments)
        assert (done.code, "must be from" in done.err) == (2, True)


# Hostile text


def test_a_terminal_that_lacks_characters_shows_the_others(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    turn(database, "数据 port 5433")
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stdout)
    assert cli.main(["--home", str(tmp_path), "list"]) == 0
    assert cli.main(["--home", str(tmp_path), "stats", "--questions", "0"]) == 0
    written = stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"?? port 5433" in written
    assert b"0 new entries and 1 new turn" in written


@pytest.mark.parametrize("columns", [(), ("--json",)])
def test_hostile_text_reaches_no_terminal(
    command: Callable[..., Outcome], database: str, tmp_path: Path, columns: tuple[str, ...]
) -> None:
    record_titles(tmp_path, {f"s{HOSTILE}": HOSTILE})
    number = entry(
        database, HOSTILE, theme=HOSTILE, home=HOSTILE, metadata='{"origin": "\\u001b[31m", "session_id": "s1"}'
    )
    said = turn(database, f"{HOSTILE} said", theme=HOSTILE, session=f"s{HOSTILE}", parent_session_id=HOSTILE)
    sql(database, "update memory_entries set content = content || ' new'")
    for arguments in (
        ("themes",), ("list",), ("show", str(number)), ("show", str(said), "--turn"), ("stats", "--questions", "0"),
    ):  # fmt: skip
        done = command(*arguments, *columns)
        assert done.code == 0, done.err
        assert not set(done.shown) & set("\x1b\x07\r\u202e"), arguments
    turn(database, f"{HOSTILE} said", theme="ops", session=f"s{HOSTILE}", parent_session_id=HOSTILE)
    sessions = command("sessions", "--theme", "ops", *columns)
    assert ("owned" in sessions.out, set(sessions.shown) & set("\x1b\x07\r\u202e")) == (True, set())
