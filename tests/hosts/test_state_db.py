"""What a host has recorded is read: deliveries and corrections are told from what began a turn or answered it."""

from __future__ import annotations

import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from host_record import Record

from hermes_memory_pgvector.errors import Unavailable
from hermes_memory_pgvector.hosts import state_db
from hermes_memory_pgvector.hosts.runtime_messages import REDIRECTING
from hermes_memory_pgvector.hosts.transcript import exchanges

BRIEF = "[Cron delivery: rain]\nIt will\n\nrain."
ROWS = [
    ("user", "Which tap?", None, None), ("assistant", "", "[{}]", "tool_calls"),
    ("assistant", "The red one.", None, "stop"), ("assistant", "The parcel has come.", None, None),
    ("assistant", "And the letter.", None, None),
    ("user", BRIEF, None, None), ("user", "Which bell?", None, None), ("assistant", "The old one.", None, None),
    ("assistant", "It rings.", None, None),
]  # fmt: skip
BEFORE = [("user", "Which tap?"), ("assistant", "The red one.")]
# As a host has them when it goes on.
MERGED = [
    ("user", "Which tap?"), ("assistant", ""), ("assistant", "The red one.\nThe parcel has come.\nAnd the letter."),
    ("user", f"{BRIEF}\n\nWhich bell?"), ("assistant", "The old one.\nIt rings."), ("user", BRIEF),
]  # fmt: skip


@pytest.fixture
def record(tmp_path: Path) -> Path:
    with sqlite3.connect(tmp_path / "state.db") as file:
        file.execute(
            "create table messages (id integer primary key, session_id text, role text, content text, tool_calls text,"
            " finish_reason text, api_content text, timestamp real, active integer default 1,"
            " compacted integer default 0)"
        )
        file.executemany(
            "insert into messages (session_id, role, content, tool_calls, finish_reason) values ('s', ?, ?, ?, ?)", ROWS
        )
    return tmp_path


def said(messages: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


def test_an_answer_is_what_the_agent_said_when_it_was_asked(record: Path) -> None:
    delivered = {"The parcel has come.", "And the letter."}
    assert said(state_db.messages(record, "s")) == [row[:2] for row in ROWS if row[1] not in delivered]


@pytest.mark.parametrize("end", ["incomplete", "verification_required", "verify_hook_continue"])
def test_an_answer_that_was_interrupted_behind_what_came_before_it_is_no_delivery(record: Path, end: str) -> None:
    messages = [("user", "Which tap?", None), ("assistant", "I will look.", end), ("assistant", "The red", None)]
    statement = "insert into messages (session_id, role, content, finish_reason) values ('t', ?, ?, ?)"
    with sqlite3.connect(record / "state.db") as file:
        file.executemany(statement, messages)
    assert said(state_db.messages(record, "t")) == [(role, content) for role, content, _ in messages]


def test_what_a_host_has_written_again_with_its_time_is_left_out(record: Path) -> None:
    turns = [("user", "Which tap?", 100.5), ("assistant", "The red one.", 103.25), ("user", "Which tap?", 200.5)]
    with sqlite3.connect(record / "state.db") as file:
        for row in (*turns, *turns[:2], ("assistant", "The red one.", 203.75)):
            statement = "insert into messages (session_id, role, content, timestamp) values ('t', ?, ?, ?)"
            file.execute(statement, row)
    found = [(m["role"], m["content"], m["written"]) for m in state_db.messages(record, "t")]
    assert found == [*turns, ("assistant", "The red one.", 203.75)]


def test_the_copy_of_an_answer_that_many_tools_gave_is_taken_back_with_its_turn(record: Path) -> None:
    """One host writes what a compression in place keeps a microsecond after each other, results of tools between."""
    kept = [
        ("user", "Which bell?"),
        ("assistant", "Let me see."),
        *[("tool", "a page")] * 8,
        ("assistant", "It rings."),
    ]
    turns = [(*row, 100.5 + 3 * place, 0, 1) for place, row in enumerate((*BEFORE, *kept))]
    copies = [(*row, 200.5 + place * 1e-6, 0, 0) for place, row in enumerate(kept)]
    with sqlite3.connect(record / "state.db") as file:
        statement = (
            "insert into messages (session_id, role, content, timestamp, active, compacted) values ('t', ?, ?, ?, ?, ?)"
        )
        file.executemany(statement, turns + copies)
    found = state_db.messages(record, "t")
    assert said(message for message in found if not message["taken_back"]) == BEFORE
    assert said(message for message in found if message["taken_back"]) == [row for row in kept if row[0] != "tool"]


def test_what_a_host_merged_is_taken_apart(record: Path) -> None:
    own = state_db.own(record, ["s"], [{"role": role, "content": content} for role, content in MERGED])
    assert said(own) == [
        ("user", "Which tap?"), ("assistant", ""), ("assistant", "The red one."), ("user", "Which bell?"),
        ("assistant", "The old one.\nIt rings."), ("user", BRIEF),
    ]  # fmt: skip
    # The host asks it as a question, by `/retry`.
    assert exchanges([*own, {"role": "assistant", "content": "Take a coat."}]) == exchanges(own)


def test_a_lock_that_ends_between_two_queries_hides_no_delivery(record: Path) -> None:
    with closing(sqlite3.connect(record / "state.db", isolation_level=None, check_same_thread=False)) as host:
        host.execute("begin exclusive")
        ends = threading.Timer(1.4 * state_db.WAIT_S_MAX, host.execute, ["commit"])
        ends.start()
        with pytest.raises(Unavailable):
            state_db.own(record, ["s"], [{"role": "assistant", "content": "The parcel has come."}])
        ends.join()
    found = state_db.own(record, ["s"], [{"role": "assistant", "content": "The parcel has come."}])
    assert said(found) == [("assistant", "")]


def test_a_transcript_into_which_nothing_was_delivered_stays_as_it_is(record: Path, tmp_path: Path) -> None:
    messages = [{"role": "user", "content": f"{BRIEF}\n\nWhich bell?"}]
    assert state_db.own(record, ["another"], messages) == messages
    assert state_db.own(tmp_path / "nowhere", ["s"], messages) == messages


def test_a_message_that_corrected_a_turn_begins_none(record: Path) -> None:
    sent = f"{REDIRECTING}\n[This response was interrupted by a user correction.]\n\nThe old one."
    rows = [
        ("user", "Which bell?", None),
        ("assistant", "", None),
        ("user", "The old one.", sent),
        ("assistant", "Here.", None),
    ]
    with sqlite3.connect(record / "state.db") as file:
        statement = "insert into messages (session_id, role, content, api_content) values ('corrected', ?, ?, ?)"
        file.executemany(statement, rows)
    assert exchanges(state_db.messages(record, "corrected")) == [("Which bell?", "Here.")]


def test_an_answer_that_repeats_or_quotes_a_delivery_stays_whole(record: Path) -> None:
    quoted = "I have sent you this:\n\nThe parcel has come."
    merged = "The red one.\nThe parcel has come."
    # A compression writes what was merged to the record again.
    rows = [("Which parcel?", quoted), ("And again?", "And the letter."), ("Which tap?", merged)]
    with sqlite3.connect(record / "state.db") as file:
        for question, answer in rows:
            for role, content, end in (("user", question, None), ("assistant", answer, "stop")):
                values = (role, content, end)
                file.execute(
                    "insert into messages (session_id, role, content, finish_reason) values ('s', ?, ?, ?)", values
                )
    own = state_db.own(record, ["s"], [{"role": "assistant", "content": answer} for _, answer in rows])
    assert said(own) == [("assistant", quoted), ("assistant", "And the letter."), ("assistant", "The red one.")]


def test_many_deliveries_in_a_row_are_taken_out_of_one_message(record: Path) -> None:
    briefs = [f"[Webhook delivery: ci]\nBuild {number}\n\nis green." for number in range(300)]
    statement = "insert into messages (session_id, role, content) values ('s', 'user', ?)"
    with sqlite3.connect(record / "state.db") as file:
        file.executemany(statement, [(brief,) for brief in briefs])
    joined = "\n\n".join(briefs)
    for content in (f"{joined}\n\nWhich bell?", f"Which bell?\n\n{joined}", f"{joined}\n\nWhich bell?\n\n{joined}"):
        assert said(state_db.own(record, ["s"], [{"role": "user", "content": content}])) == [("user", "Which bell?")]


def test_what_was_delivered_before_a_compression_is_taken_out_behind_it(record: Path) -> None:
    with sqlite3.connect(record / "state.db") as file:
        # The session that goes on begins with the last messages, as the host has merged them.
        file.executemany(
            "insert into messages (session_id, role, content, finish_reason) values ('t', ?, ?, 'stop')", MERGED[2:3]
        )
    messages = [{"role": role, "content": content} for role, content in MERGED[2:3]]
    assert said(state_db.own(record, ["t", "s"], messages)) == [("assistant", "The red one.")]


def test_an_answer_by_which_a_gateway_goes_on_by_itself_is_none_and_is_taken_out_of_the_one_before(
    record: Path,
) -> None:
    """One host does so after a restart. It records a message without a text, and forgets it when it goes on."""
    taps, summary = [*BEFORE, ("user", "Which key?")], "[CONTEXT COMPACTION — REFERENCE ONLY] Taps."
    restarted = [("user", ""), ("assistant", "I am back.")]
    # The last question was interrupted: what the gateway then says is its answer.
    rows = [*BEFORE, *restarted, ("assistant", summary), *taps, *restarted]
    statement = "insert into messages (session_id, role, content, finish_reason) values ('t', ?, ?, ?)"
    with sqlite3.connect(record / "state.db") as file:
        file.executemany(statement, [(*row, "stop" if row[0] == "assistant" else None) for row in rows])
    asked = [*BEFORE, ("user", ""), ("assistant", summary), *taps, *restarted]
    assert said(state_db.messages(record, "t")) == asked
    merged = [BEFORE[0], ("assistant", f"The red one.\nI am back.\n{summary}"), *taps, ("assistant", "It is here.")]
    own = state_db.own(record, ["t"], [{"role": role, "content": content} for role, content in merged])
    assert said(own) == [*BEFORE, *taps, ("assistant", "It is here.")]


def test_a_gateway_may_record_the_sessions_of_all_profiles_in_its_own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, work = tmp_path, tmp_path / "profiles" / "work"
    work.mkdir(parents=True)
    with sqlite3.connect(work / "state.db") as file:
        # That host makes it for other things.
        file.execute("create table delivery_obligations (obligation_id text)")
    record, turn = Record(gateway), ("Which tap?", "The red one.")
    record.say("s1", turn)
    record.begin("s1", "")
    record.begin("s2", "s1", end_reason="branched")
    monkeypatch.setenv("HERMES_HOME", str(gateway))
    assert state_db.messages(work, "s1") == []
    assert state_db.recent_sessions(work, 0, 10) == []
    monkeypatch.setitem(sys.modules, "gateway.run", SimpleNamespace(_gateway_runner_ref=object))
    assert said(state_db.messages(work, "s1")) == [("user", turn[0]), ("assistant", turn[1])]
    assert state_db.ancestors(work, "s2", 9) == state_db.continued(work, "s2", 9) == ("s1",)
    assert state_db.messages(work, "s3") == []


def test_the_rows_of_sessions_have_no_system_prompts(record: Path) -> None:
    with sqlite3.connect(record / "state.db") as file:
        file.execute("create table sessions (id text, source text, model_config text, system_prompt text)")
        file.execute("insert into sessions values ('s', 'cli', '', 'You are an agent.')")
        file.execute("update messages set timestamp = 5")
    (row,) = state_db.recent_sessions(record, 0, 10)
    assert row == {"id": "s", "source": "cli", "model_config": "", "latest": 5, "recorded": 9}
