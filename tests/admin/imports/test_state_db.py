"""Past sessions of a host come into the memory, from records made by hand; tests/host has those of real hosts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from past_sessions import SAID_AT, Record, turn

from hermes_memory_pgvector.files import Marks, mark_name
from hermes_memory_pgvector.hosts import state_db
from hermes_memory_pgvector.hosts.runtime_messages import HANDED_OFF, REDIRECTING
from hermes_memory_pgvector.model import TurnTaken
from hermes_memory_pgvector.session import capture
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.session.off_record_marks import OffRecordMarks, turn_mark
from hermes_memory_pgvector.session.person_key import PersonKey
from hermes_memory_pgvector.session.themes import theme_of
from hermes_memory_pgvector.settings import load
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare

ROWS = "select session_id, role, content, ts, metadata ->> 'title' from conversations order by ts, id"


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record(tmp_path / "host")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def bring(database: str, record: Record, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    home.mkdir()
    return lambda *more: hermes_pgvector(
        "--home", str(home), "import", "--from", "state-db", str(record.path), "--theme", "ops", "--json", *more
    )


def sql(dsn: str, statement: str = ROWS) -> list[Any]:
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement.encode()).fetchall()


def numbers(dsn: str) -> list[str]:
    return [content.split()[1] for _, role, content, _, _ in sql(dsn) if role == "assistant"]


def test_long_sessions_come_whole_and_what_is_left_of_the_longest_is_named(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.say("s1", *range(1, state_db.NEWEST_MAX // 2 + 2))
    record.say("s2", 1, 2, day=1)
    assert bring("--dry-run").document["rows"] == {"turn": {"found": 10_003, "new": 10_003}}
    monkeypatch.setattr(state_db, "MESSAGES_MAX", 4)
    done = bring()
    assert done.document["rows"] == {"turn": {"found": 4, "new": 4}}
    assert (done.code, "session s1: only the first 4 messages are read" in done.err) == (1, True)
    assert "session s2" not in done.err


@pytest.mark.parametrize("key", ["a long random text", "ab" * 32, "AB" * 32], ids=["text", "hexadecimal", "capitals"])
def test_chats_of_persons_come_into_the_themes_that_agents_make_with_the_same_key(
    bring: Callable[..., Outcome], record: Record, database: str, home: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", key)
    session_key = "agent:main:telegram:dm:4711"
    record.say("s1", 1, source="telegram", chat_type="dm", chat_id="4711", user_id="4711", session_key=session_key)
    assert bring().code == 0
    chat = Identity(
        gateway_session_key=session_key, platform="telegram", chat_type="dm", chat_id="4711", user_id="4711"
    )
    theme = PersonKey(home / "pgvector", key).name(lambda used: theme_of(chat, aliases={}, person_key=used))
    assert sql(database, "select distinct agent_identity from conversations") == [(theme,)]


def test_without_a_path_the_record_of_this_home_is_taken(
    database: str, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    Record(home).say("s1", 1, 2)
    assert hermes_pgvector("--home", str(home), "import", "--from", "state-db").code == 0
    assert numbers(database) == ["1", "2"]
    refused = hermes_pgvector("--home", str(home), "import")
    assert (refused.code, "name the PATH" in refused.err) == (2, True)


def test_what_is_no_record_is_named(database: str, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    home.mkdir()
    (home / "config.yaml").touch()
    remedy = "; name the HERMES_HOME of a host, or the state.db in it\n"
    for path, problem in (
        ("", f"{home}/state.db does not exist"),
        (f"{home}/gone/state.db", f"{home}/gone/state.db does not exist"),
        (f"{home}/config.yaml", f"{home}/config.yaml is no state.db of a host"),
    ):
        refused = hermes_pgvector("--home", str(home), "import", "--from", "state-db", *filter(None, [path]))
        assert (refused.code, refused.err) == (2, f"hermes-pgvector: {problem}{remedy}")


def test_all_sessions_come_with_their_dates_and_titles(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2, title="Bridges of Bern")
    record.say("s2", 3, day=1)
    planned = bring("--dry-run")
    assert planned.document["rows"] == {"turn": {"found": 3, "new": 3}}
    assert sql(database) == []
    done = bring()
    assert done.code == 0, done.err
    assert done.document["rows"] == {"turn": {"found": 3, "new": 3}}
    found = sql(database)
    assert [content for _, _, content, _, _ in found] == [*turn(1), *turn(2), *turn(3)]
    assert [(at.date().isoformat(), title) for _, _, _, at, title in found[::2]] == [
        ("2025-03-04", "Bridges of Bern"),
        ("2025-03-04", "Bridges of Bern"),
        ("2025-03-05", None),
    ]
    assert sql(database, "select count(*) from conversations where search is null") == [(0,)]
    assert bring().document["rows"] == {"turn": {"found": 3, "new": 0}}
    assert len(sql(database)) == 6


def test_a_question_that_an_earlier_release_stored_with_what_a_host_added_is_not_stored_again(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.say("s1", 1, 2, 2)
    noted = f'[Replying to: "Which bridge?"]\n\n{turn(2)[0]}\n\n--- Attached Context ---\n\nAare'
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute(
            "update messages set content = ?, timestamp = timestamp + id where content = ?", (noted, turn(2)[0])
        )
        host.execute("delete from messages where content = ?", (turn(2)[1],))
    with monkeypatch.context() as earlier:
        earlier.setattr(capture, "written", str)
        assert bring().document["rows"] == {"turn": {"found": 3, "new": 3}}
    assert bring().document["rows"] == {"turn": {"found": 3, "new": 0}}
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1), noted, noted]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("[System: Your previous response was truncated. Continue where you left off.]", None),
        ("[OUT-OF-BAND USER MESSAGE — by the user]\nand hurry\n[/OUT-OF-BAND USER MESSAGE]", "steer"),
    ],
)
def test_a_message_in_the_midst_of_a_turn_begins_none(
    bring: Callable[..., Outcome], record: Record, database: str, said: str, kind: str | None
) -> None:
    record.say("s1", 1, 2)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set id = id + 1 where role = 'assistant' and content = ?", (turn(2)[1],))
        values = ("s1", "user", said, kind, SAID_AT.timestamp() + 120)
        host.execute(
            "insert into messages (id, session_id, role, content, display_kind, timestamp) values (4, ?, ?, ?, ?, ?)",
            values,
        )
    assert bring().code == 0
    corrected = f"{turn(2)[0]}\n\nUser correction during the turn: and hurry" if kind else turn(2)[0]
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1), corrected, turn(2)[1]]


@pytest.mark.parametrize(("said", "kept"), [("And of its arches.", True), ("off the record: my PIN is 1234", False)])
def test_a_turn_that_a_person_redirected_is_the_one_that_the_host_handed_over(
    bring: Callable[..., Outcome], record: Record, database: str, said: str, kept: bool
) -> None:
    record.say("s1", 1, 2)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set id = id + 2 where role = 'assistant' and content = ?", (turn(2)[1],))
        values = [
            (4, "s1", "assistant", "", "hidden", None, SAID_AT.timestamp() + 120),
            (5, "s1", "user", said, None, f"{REDIRECTING}\nIt was\n\n{said}", SAID_AT.timestamp() + 120),
        ]
        host.executemany(
            "insert into messages (id, session_id, role, content, display_kind, api_content, timestamp) "
            "values (?, ?, ?, ?, ?, ?, ?)", values,
        )  # fmt: skip
    assert bring().code == 0
    redirected = [f"{turn(2)[0]}\n\nUser correction during the turn: {said}", turn(2)[1]]
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1), *(redirected if kept else [])]


def test_questions_that_were_interrupted_are_stored_though_they_are_short(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set content = 'It is of oak.' where content = ?", (turn(1)[0],))
        host.execute("delete from messages where content = ?", (turn(1)[1],))
    assert (bring().code, bring().code) == (0, 0)
    assert [content for _, _, content, _, _ in sql(database)] == ["It is of oak.", *turn(2)]
    record.say("s2", 3)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set content = 'Just so.' where content = ?", (turn(3)[0],))
        host.execute("delete from messages where content = ?", (turn(3)[1],))
    # The last one may have an answer yet.
    assert bring().code == 0
    assert len(sql(database)) == 3


@pytest.mark.parametrize("said", ["off the record: my PIN is 1234", "off the record please"])
def test_a_question_that_off_the_record_has_interrupted_stays_out(
    bring: Callable[..., Outcome], record: Record, database: str, said: str
) -> None:
    record.say("s1", 1, 2, 3)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("delete from messages where content = ?", (turn(2)[1],))
        host.execute("update messages set content = ? where content = ?", (said, turn(3)[0]))
    assert bring().code == 0
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1)]


def test_a_turn_that_was_redirected_in_a_room_is_imported_without_what_another_person_may_have_said(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", "a long random text")
    said, key = "And of its arches.", "agent:main:telegram:group:-1"
    record.say("s1", 1, source="telegram", chat_type="group", chat_id="-1", session_key=key)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set id = 3 where role = 'assistant'")
        host.execute(
            "insert into messages (id, session_id, role, content, api_content, timestamp) "
            "values (2, 's1', 'user', ?, ?, ?)", (said, f"{REDIRECTING}\nIt was\n\n{said}", SAID_AT.timestamp()),
        )  # fmt: skip
    assert bring().code == 0
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1)]


def test_turns_taken_back_and_what_was_off_the_record_stay_out(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    record.say("s1", 1)
    record.say("s1", 2, active=False)
    record.say("s2", 3)
    Marks(home / "pgvector" / "off_record", 10, "").change([mark_name("s2:ops"), mark_name("s2")], marked=True)
    record.say("s3", 4, source="cron")
    # Nobody has spoken in the first of two branches. In another one, the session was put on the record again.
    record.say("s4", 3, parent_session_id="s2", model_config='{"_branched_from": "s2"}')
    record.say("s5", 3, parent_session_id="s4", model_config='{"_branched_from": "s4"}')
    record.say("s6", parent_session_id="s2", model_config='{"_branched_from": "s2"}')
    record.add("s6", ("user", "on the record"))
    record.say("s7", 5, parent_session_id="s6", model_config='{"_branched_from": "s6"}')
    told = bring().document
    assert numbers(database) == ["1", "5"]
    assert told["skipped"] == {"off the record": 3, "jobs of the host": 1}


def test_a_session_whose_record_is_locked_on_the_way_is_named_and_comes_with_the_next_run(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.say("s1", 1)
    with monkeypatch.context() as locked:
        locked.setattr(state_db, "continued", lambda *_: None)
        done = bring()
    assert (done.code, done.document["skipped"], numbers(database)) == (1, {}, [])
    assert "session s1 cannot be read now; run the command again" in done.err
    assert bring().code == 0
    assert numbers(database) == ["1"]


def test_turns_off_the_record_that_no_message_tells_of_stay_out(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    record.say("s1", 1, 2)
    record.say("s2", 1, 2, 3, parent_session_id="s1", model_config='{"_branched_from": "s1"}')
    OffRecordMarks(home, home / "pgvector").change([turn_mark("s1", turn(2)[1])], marked=True)
    assert bring().code == 0
    assert numbers(database) == ["1", "3"]


def test_a_branch_of_a_session_that_a_correction_took_off_the_record_stays_out(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    """One host appends it to the result of a tool, and nobody has spoken in the branch yet: the mark counts."""
    corrected = "a page\n\n[OUT-OF-BAND USER MESSAGE from the user]\noff the record\n[/OUT-OF-BAND USER MESSAGE]"
    record.say("s1", source="cli")
    record.say("s2", parent_session_id="s1", model_config='{"_branched_from": "s1"}')
    for session in ("s1", "s2"):
        record.add(session, ("user", "on the record"), ("assistant", "Good."), ("user", turn(1)[0]))
        record.add(session, ("tool", corrected), ("assistant", turn(1)[1]))
    Marks(home / "pgvector" / "off_record", 10, "").change([mark_name("s1:")], marked=True)
    assert bring().document["skipped"] == {"off the record": 2}
    assert sql(database) == []


def test_each_profile_of_a_gateway_gets_its_own_sessions_of_the_record_that_they_share(
    record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", "k" * 32)
    gateway = record.path.parent
    work = gateway / "profiles" / "work"
    work.mkdir(parents=True)
    chat = {"source": "telegram", "chat_type": "dm", "chat_id": "4711"}
    record.say("s1", 1, **chat, session_key="agent:main:telegram:dm:4711")
    record.say("s2", 2, **chat, session_key="agent:work:telegram:dm:4711", profile_name="work")
    record.say("s3", 3, profile_name="work")

    def bring(home: Path, *more: str) -> dict[str, int]:
        done = hermes_pgvector("--home", str(home), "import", "--from", "state-db", str(gateway), "--json", *more)
        return {**done.document["skipped"], "new": done.document["rows"]["turn"]["new"]}

    others = "of the profile {}: import them with its --home"
    assert bring(gateway) == {others.format("work"): 2, "new": 1}
    assert bring(work) == {others.format("default"): 1, "new": 2}
    assert numbers(database) == ["1", "2", "3"]
    # By `--theme` an operator asks for sessions of no person wherever they are.
    assert bring(gateway, "--theme", "ops") == {others.format("work"): 1, "new": 1}


def test_what_a_continued_session_repeats_is_stored_once(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2)
    record.say("s2", 2, 3, parent_session_id="s1")
    assert bring("--dry-run").document["rows"]["turn"] == {"found": 4, "new": 3}
    assert bring().document["rows"]["turn"] == {"found": 4, "new": 3}
    assert numbers(database) == ["1", "2", "3"]


def test_what_a_branch_repeats_is_stored_once_when_more_is_said_in_the_session_before_it(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2, 4, end_reason="branched", started_at=100.0)
    record.say("s2", 1, 2, 3, parent_session_id="s1", started_at=200.0)
    assert bring("--dry-run").document["rows"]["turn"]["new"] == 4
    assert bring().document["rows"]["turn"]["new"] == 4
    assert [session for session, *_ in sql(database)] == ["s1"] * 4 + ["s2"] * 2 + ["s1"] * 2


@pytest.mark.parametrize("stored", [False, True])
def test_what_a_compression_in_place_repeats_is_stored_once(
    bring: Callable[..., Outcome], record: Record, database: str, stored: bool
) -> None:
    """A host writes the first messages and the last ones again, around a summary; the running turn goes on there."""
    summary = ("assistant", "[CONTEXT COMPACTION — REFERENCE ONLY] They talked of bridges.")
    sides = {number: [*zip(("user", "assistant"), turn(number), strict=True)] for number in range(1, 9)}
    said = [
        [*chain.from_iterable(map(sides.get, (1, 2, 3, 4))), sides[5][0]],
        [sides[5][1], *sides[6], *sides[7]],
        sides[8],
    ]
    copied = [[], [*sides[1], sides[2][0], summary, *sides[4], sides[5][0]], [*sides[1], summary, *sides[6], *sides[7]]]
    if stored:
        record.say("s1", *range(1, 9))
        assert bring().code == 0
    record.say("s1")
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("delete from messages")
        rows = [
            (part < 2, 100 * part + place * step, message)
            for part in range(3)
            for messages, step in ((copied[part], 1e-6), (said[part], 1))
            for place, message in enumerate(messages, step == 1)
        ]
        for compacted, at, (role, text) in rows:
            values = ("s1", role, text, SAID_AT.timestamp() + at, not compacted, compacted)
            host.execute(
                "insert into messages (session_id, role, content, timestamp, active, compacted) "
                "values (?, ?, ?, ?, ?, ?)", values,
            )  # fmt: skip
    assert bring().document["rows"]["turn"]["new"] == (0 if stored else 8)
    assert numbers(database) == [str(number) for number in range(1, 9)]
    assert len(sql(database)) == 16


def test_the_question_of_a_turn_during_which_a_session_was_compressed_is_stored_once(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2, end_reason="compression")
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("delete from messages where content = ?", (turn(2)[1],))
    record.say("s2", 2, 3, parent_session_id="s1")
    assert bring("--dry-run").document["rows"]["turn"]["new"] == 3
    assert bring().document["rows"]["turn"]["new"] == 3
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1), *turn(2), *turn(3)]


def test_a_session_that_was_compressed_in_place_twice_comes_once_and_without_what_was_off_the_record(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    switches = [("user", "off the record"), ("assistant", "Fine."), ("user", "on the record"), ("assistant", "Fine.")]
    one, two, three, four, five, six = (list(zip(("user", "assistant"), turn(n), strict=True)) for n in range(1, 7))
    summary = [("assistant", "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.")]
    said: list[tuple[list[tuple[str, str]], int]] = [
        # What was said, and what one host wrote at once at each compression: the last turns once more.
        ([*one, *two, *switches[:2], *three, *four, *switches[2:], *five, six[0]], 0),
        ([*one, *summary, *four, *switches[2:], *five, six[0]], 1), (six[1:], 0),
        ([*summary, *five, *six], 1),
    ]  # fmt: skip
    record.say("s1")
    with closing(sqlite3.connect(record.path)) as host, host:
        host.executemany(
            "insert into messages (session_id, role, content, timestamp, active, compacted) "
            "values ('s1', ?, ?, ?, ?, ?)",
            [
                (*message, SAID_AT.timestamp() + 3600 * part + place * (1e-6 if at_once else 60), part == 3, part < 3)
                for part, (messages, at_once) in enumerate(said)
                for place, message in enumerate(messages)
            ],
        )
    assert bring("--dry-run").document["rows"]["turn"] == {"found": 4, "new": 4}
    assert bring().code == 0
    assert numbers(database) == ["1", "2", "5", "6"]
    assert bring().document["rows"]["turn"]["new"] == 0


def test_a_question_that_a_host_has_merged_with_one_off_the_record_is_left_out(
    bring: Callable[..., Outcome], record: Record, database: str
) -> None:
    record.say("s1", 1, 2)
    with closing(sqlite3.connect(record.path)) as host, host:
        merged = f"{turn(2)[0]}\n\noff the record: the PIN of the bridge is 4711"
        host.execute("update messages set content = ? where content = ?", (merged, turn(2)[0]))
    assert bring().code == 0
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1)]


@pytest.mark.parametrize("undone", [False, True])
def test_a_question_that_a_compression_in_place_has_changed_is_not_imported_with_it(
    bring: Callable[..., Outcome], record: Record, database: str, undone: bool
) -> None:
    """One host goes on with questions that it has merged, and with what a message was before it was recorded."""
    second = "And of what is it?"
    one, two = (list(zip(("user", "assistant"), turn(number), strict=True)) for number in (1, 2))
    said = [*one, two[0], ("user", second), two[1]]
    copied = [*one, ("user", f"{two[0][1]}\n\n{second}"), two[1]]
    rows = [(*row, 60 * place, 0, 1) for place, row in enumerate(said)]
    rows += [(*row, 3600 + 1e-6 * place, not (undone and place > 1), 0) for place, row in enumerate(copied)]
    record.say("s1")
    with closing(sqlite3.connect(record.path)) as host, host:
        host.executemany(
            "insert into messages (session_id, role, content, timestamp, active, compacted) "
            "values ('s1', ?, ?, ?, ?, ?)",
            [(role, text, SAID_AT.timestamp() + at, *marks) for role, text, at, *marks in rows],
        )
    assert bring().code == 0
    later = [] if undone else [turn(2)[0], second, turn(2)[1]]
    assert [content for _, _, content, _, _ in sql(database)] == [*turn(1), *later]


def test_turns_that_are_stored_or_come_later_are_not_doubled(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    def store(number: int) -> None:
        user, answer = turn(number)
        at = datetime.fromtimestamp(SAID_AT.timestamp() + 60 * number + 1.5, UTC)
        event = TurnTaken(theme="ops", session_id="s1", user=user, assistant=answer, at=at)
        opened = Database(load(home), home)
        with opened.transaction(5, 5) as connection:
            rows.apply(connection, [prepare(event)])
        opened.close()

    record.say("s1", 1, 2, 3)
    store(2)
    assert bring().document["rows"]["turn"] == {"found": 3, "new": 2}
    # It had waited in a spool.
    store(3)
    assert sorted(numbers(database)) == ["1", "2", "3"]
    assert bring().document["rows"]["turn"] == {"found": 3, "new": 0}


def test_the_rules_of_keep_decide(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_KEEP", "asked")
    record.say("s1", 1, 2)
    assert bring().code == 0
    assert sql(database) == []


@pytest.mark.parametrize("at", [SAID_AT.timestamp() * 1000, float("inf"), "yesterday"])
def test_a_message_with_a_time_that_is_none_keeps_nothing_out(
    bring: Callable[..., Outcome], record: Record, database: str, at: float | str
) -> None:
    record.say("s1", 1)
    record.say("s2", 2)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set timestamp = ? where session_id = 's1'", (at,))
    assert bring().code == 0
    assert sorted(numbers(database)) == ["1", "2"]


def test_a_file_that_is_no_record_is_refused(bring: Callable[..., Outcome], record: Record) -> None:
    record.path.write_bytes(b"no database")
    assert bring().code == 1
    record.path.unlink()
    assert bring().code == 2


def test_what_a_terminal_said_in_the_session_of_a_person_is_stored_once(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal that goes on with it, or makes a branch of it, stores what is said there in its own theme."""
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", "a long random text")
    chat = {"source": "telegram", "chat_type": "dm", "chat_id": "4711", "user_id": "4711"}
    record.say("s1", 1, 2, **chat, session_key="agent:main:telegram:dm:4711")
    record.say("s2", 1, 2, 3, parent_session_id="s1", model_config='{"_branched_from": "s1"}')
    said = TurnTaken(theme="default", session_id="s1", user=turn(2)[0], assistant=turn(2)[1])
    opened = Database(load(home), home)
    with opened.transaction(5, 5) as connection:
        rows.apply(connection, [prepare(said)])
    opened.close()
    assert bring().document["rows"]["turn"] == {"found": 5, "new": 2}
    assert sorted(numbers(database)) == ["1", "2", "3"]
    assert bring().document["rows"]["turn"]["new"] == 0


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_what_a_terminal_said_before_it_handed_its_session_to_a_room_comes_into_its_own_theme(
    bring: Callable[..., Outcome], record: Record, database: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Only the host says that it did so: a person may write what its note says."""
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", "a long random text")
    room = {"source": "telegram", "chat_type": "group", "chat_id": "42", "user_id": "4711"}
    record.say("s1", 1, **room, session_key="agent:main:telegram:group:42", handoff_state=state)
    record.add("s1", ("user", f"{HANDED_OFF}Atlas) to this chat.]"), ("assistant", "Go on, please."))
    record.say("s1", 2, day=1)
    assert bring("--dry-run").document["rows"]["turn"] == {"found": 2, "new": 2}
    assert bring().document["rows"]["turn"] == {"found": 2, "new": 2}
    told = "select content, agent_identity = 'ops', metadata ->> 'platform' from conversations where role = 'user'"
    terminal = (True, "cli") if state == "completed" else (False, "telegram")
    assert sql(database, f"{told} order by ts") == [(turn(1)[0], *terminal), (turn(2)[0], False, "telegram")]
    assert bring().document["rows"]["turn"]["new"] == 0


NOTE = (("user", f"{HANDED_OFF}Atlas) to this chat.]"), ("assistant", "Go on, please."))
ROOM = {"source": "telegram", "chat_type": "group", "chat_id": "42", "session_key": "agent:main:telegram:group:42"}


@pytest.fixture
def said_in(
    bring: Callable[..., Outcome], database: str, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, list[str]]]:
    """Imports, and returns the numbers of the turns by the theme of the home and that of the room."""
    monkeypatch.setenv("HERMES_PGVECTOR_PERSON_KEY", "a long random text")

    def look(*more: str) -> dict[str, list[str]]:
        planned, done = (bring(*flags, *more).document["rows"] for flags in (["--dry-run"], []))
        assert planned == done
        assert bring(*more).document["rows"].get("turn", {"new": 0})["new"] == 0
        stored = "select agent_identity, content from conversations where role = 'assistant' order by ts"
        found: dict[str, list[str]] = {"ops": [], "room": []}
        for theme, content in sql(database, stored):
            found["ops" if theme == "ops" else "room"].append(content.split()[1])
        return found

    return look


@pytest.mark.parametrize("forged", [True, False])
def test_what_was_said_between_two_handoffs_is_of_nobody(
    said_in: Callable[..., dict[str, list[str]]], record: Record, forged: bool
) -> None:
    """It is of persons in the first chat, and of the terminal; and a person may write what the note says."""
    record.say("s1", 1, **ROOM, handoff_state="completed")
    record.add("s1", *NOTE)
    record.say("s1", 2, day=1)
    record.add("s1", ("user", f"{HANDED_OFF}Atlas, again) to this chat.]"), *([] if forged else NOTE[1:]))
    record.say("s1", 3, day=2)
    assert said_in() == {"ops": ["1"], "room": ["3"]}


def test_a_handoff_that_was_taken_back_parts_the_session_all_the_same(
    said_in: Callable[..., dict[str, list[str]]], record: Record
) -> None:
    record.say("s1", 1, **ROOM, handoff_state="completed")
    record.add("s1", *NOTE)
    with closing(sqlite3.connect(record.path)) as host, host:
        host.execute("update messages set active = 0 where content like ?", (f"{HANDED_OFF}%",))
        host.execute("update messages set active = 0 where content = ?", (NOTE[1][1],))
    record.say("s1", 2, day=1)
    assert said_in() == {"ops": ["1"], "room": ["2"]}


def test_a_session_without_a_note_of_its_handoff_is_left_out(
    said_in: Callable[..., dict[str, list[str]]], record: Record
) -> None:
    record.say("s1", 1, **ROOM, handoff_state="completed")
    assert said_in() == {"ops": [], "room": []}


@pytest.mark.parametrize("again", ["on the record", ""])
def test_what_a_terminal_took_off_the_record_stays_off_in_the_chat(
    said_in: Callable[..., dict[str, list[str]]], record: Record, again: str
) -> None:
    """The record may be of another machine, without the marks."""
    record.say("s1", 1, **ROOM, handoff_state="completed")
    record.add("s1", ("user", "off the record"), ("assistant", "Noted."), *NOTE)
    record.say("s1", 2, day=1)
    record.add("s1", ("user", again), ("assistant", "Noted."))
    record.say("s1", 3, day=2)
    assert said_in() == {"ops": ["1"], "room": ["3"] if again else []}


def test_what_a_compression_keeps_of_a_terminal_is_not_imported_for_the_chat(
    said_in: Callable[..., dict[str, list[str]]], record: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_KEEP", '[{"platform": "cli", "action": "none"}]')
    record.say("s1", 1, **ROOM, handoff_state="completed", end_reason="compression")
    record.add("s1", *NOTE)
    record.say("s1", 2, day=1)
    record.say("s2", 1, **ROOM, parent_session_id="s1")
    record.add("s2", ("user", "[CONTEXT COMPACTION — REFERENCE ONLY] Of bridges."))
    record.say("s2", 2, 3, day=1)
    assert said_in() == {"ops": [], "room": ["2", "3"]}


def test_clients_of_a_host_that_recorded_no_keys_yet_come_into_no_theme_of_the_home(
    record: Record, home: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later release records them."""
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    for number, key in enumerate(("", "garden", ""), 1):
        record.say(f"s{number}", number, source="api_server", session_key=key, started_at=1000.0 * number)
    command = ("--home", str(home), "import", "--from", "state-db", str(record.path), "--json")
    assert hermes_pgvector(*command).document["rows"]["turn"]["new"] == 2
    assert sorted(numbers(database)) == ["2", "3"]


def test_turns_of_clients_that_share_a_session_stay_in_the_theme_of_each(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    """One host does not record what a client calls itself, the other one what the last of them did."""
    record.say("s1", 1, 2, 3, source="api_server", session_key="garden")
    opened = Database(load(home), home)
    with opened.transaction(5, 5) as connection:
        for theme, number in (("garden", 1), ("kitchen", 2)):
            said = TurnTaken(theme=theme, session_id="s1", user=turn(number)[0], assistant=turn(number)[1])
            rows.apply(connection, [prepare(said)])
    opened.close()
    assert bring().document["rows"]["turn"] == {"found": 3, "new": 1}
    assert bring().document["rows"]["turn"] == {"found": 3, "new": 0}
    # Sessions without a person come into the theme that the operator names.
    record.say("s2", 4, source="api_server")
    assert bring().document["rows"]["turn"] == {"found": 4, "new": 1}
    done = hermes_pgvector("--home", str(home), "import", "--from", "state-db", str(record.path), "--json")
    assert done.document["rows"]["turn"] == {"found": 4, "new": 0}


@pytest.mark.parametrize("key", ["garden", ""])
def test_sessions_of_clients_come_into_the_theme_of_the_home_only_where_the_host_records_other_themes(
    record: Record, home: Path, database: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", database)
    record.say("s1", 1, source="api_server")
    record.say("s2", 2, source="api_server", session_key=key)
    record.say("s3", 3)
    command = ("--home", str(home), "import", "--from", "state-db", str(record.path), "--json")
    plain = hermes_pgvector(*command).document
    assert plain["rows"]["turn"]["new"] == (3 if key else 1)
    assert sum(plain["skipped"].values()) == (0 if key else 2)
    assert all("name one with --theme" in reason for reason in plain["skipped"])
    named = hermes_pgvector(*command, "--theme", "default").document
    assert named["rows"]["turn"]["new"] == (0 if key else 2)
    assert sorted(numbers(database)) == ["1", "2", "3"]


def test_a_branch_comes_into_the_theme_that_is_named_as_whole_as_the_session_before_it(
    bring: Callable[..., Outcome], record: Record, home: Path, database: str
) -> None:
    """Both were stored in the theme of the home when they were said."""
    record.say("s1", 1, 2)
    record.say("s2", 1, 2, 3, parent_session_id="s1", model_config='{"_branched_from": "s1"}')
    usual = hermes_pgvector("--home", str(home), "import", "--from", "state-db", str(record.path), "--json")
    assert usual.document["rows"]["turn"]["new"] == 3
    assert bring().document["rows"]["turn"]["new"] == 3
    assert bring().document["rows"]["turn"]["new"] == 0
    assert sorted(numbers(database)) == ["1", "1", "2", "2", "3", "3"]
