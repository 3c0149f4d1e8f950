"""What the record of a host says of a context, in the forms of both hosts."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.hosts import state_db
from hermes_memory_pgvector.hosts.context_record import CHARS_MAX
from hermes_memory_pgvector.hosts.transcript import kept_with_summary
from hermes_memory_pgvector.recall.context import Context, ContextReader

SESSION = "s1"
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Ships were discussed."
KEPT = "[PRIOR CONTEXT — for reference only; not a new message]", "[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]"
PROMPT = "You are an agent.\n\nMEMORY\nThe lamp is green.\n§\nThe harbour is deep.\n\nTools"


def said_in(content: str) -> str:
    return kept_with_summary(content) or content


@dataclass
class Record:
    """A host's `state.db`. With `keeps_times`, copies of messages keep the times of these, as on one host.

    The time of a question is that of the sender's clock, which is `sender_ahead_s` ahead of the host's.
    """

    home: Path
    keeps_times: bool
    sender_ahead_s: float = 0.0
    clock: float = 1_800_000_000.0
    live: list[tuple[int, str, str, str | None, float]] = field(default_factory=list)
    stored: dict[str, float] = field(default_factory=dict)
    turns: int = 0

    def __post_init__(self) -> None:
        shared = ", system_prompt_hash text" if self.keeps_times else ""
        self("create table sessions (id text primary key, system_prompt text" + shared + ")")
        self("create table system_prompts (hash text primary key, prompt text)")
        self(
            "create table messages (id integer primary key, session_id text, role text, content text, api_content text,"
            " tool_calls text, timestamp real, active integer default 1, compacted integer default 0)"
        )
        if self.keeps_times:
            self("insert into sessions values (?, null, 'h')", SESSION)
            self("insert into system_prompts values ('h', ?)", PROMPT)
        else:
            self("insert into sessions values (?, ?)", SESSION, PROMPT)

    def __call__(self, statement: str, *values: object) -> int:
        with closing(sqlite3.connect(self.home / "state.db")) as connection, connection:
            return int(connection.execute(statement, values).lastrowid or 0)

    def turn(self, memory: str | None, *, answered: bool = True) -> None:
        self.turns += 1
        question = f"What of ship number {self.turns}?"
        sent = f"{question}\n\n<memory-context>\n- [2026-01-01, memory] {memory}\n</memory-context>" if memory else None
        self._add("user", question, sent, self.clock + 1 + self.sender_ahead_s)
        if answered:
            self._add("assistant", f"Ship number {self.turns} is at sea.", None)
            self.stored[question] = self.clock

    def undo(self) -> None:
        while self.live:
            number, role, *_ = self.live.pop()
            self("update messages set active = 0 where id = ?", number)
            if role == "user":
                return

    def compress(self, head: int, tail: int, merged: bool = False) -> None:
        """Keep the first and the last messages as copies, with a summary between them, or behind the first kept one."""
        tail = max(head, len(self.live) - tail)
        kept = [*self.live[:head], *([] if merged and self.live[tail:] else [None]), *self.live[tail:]]
        self("update messages set active = 0, compacted = 1 where active = 1")
        self.live = []
        for place, message in enumerate(kept):
            if message is None:
                self._add("assistant", SUMMARY, None)
                continue
            _, role, content, sent, at = message
            content = said_in(content)
            if merged and place == min(head, tail):
                content, sent = f"{KEPT[0]}\n{content}\n\n{KEPT[1]}\n\n{SUMMARY}", None
            self._add(role, content, sent, at if self.keeps_times else None)

    def _add(self, role: str, content: str, sent: str | None, at: float | None = None) -> None:
        self.clock += 1
        at = at or self.clock
        values = (SESSION, role, content, sent, at)
        number = self(
            "insert into messages (session_id, role, content, api_content, timestamp) values (?, ?, ?, ?, ?)", *values
        )
        self.live.append((number, role, content, sent, at))


@pytest.fixture(params=[False, True], ids=["new-times", "same-times"])
def record(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Record]:
    return Record(tmp_path, request.param)


OPERATIONS = st.lists(
    st.tuples(st.just("turn"), st.sampled_from(["a lamp", "a buoy", "a pier…", None]), st.booleans())
    | st.tuples(st.just("undo"))
    | st.tuples(st.just("compress"), st.integers(0, 3), st.integers(1, 6), st.booleans()),
    max_size=14,
)


@settings(deadline=None)
@given(OPERATIONS, st.booleans())
def test_a_reader_that_follows_a_session_sees_what_a_new_one_sees(
    operations: list[tuple[str, ...]], keeps_times: bool
) -> None:
    with TemporaryDirectory() as folder:
        record = Record(Path(folder), keeps_times)
        following = ContextReader(Path(folder), 100)
        for name, *arguments in operations:
            if name == "turn":
                memory, answered = arguments
                record.turn(memory, answered=bool(answered))
            else:
                getattr(record, name)(*arguments)
            seen, anew = following.read(SESSION, 60), ContextReader(Path(folder), 100).read(SESSION, 60)
            assert (set(seen.shown.said), set(seen.shown.whole), set(seen.shown.passages)) == (
                set(anew.shown.said), set(anew.shown.whole), set(anew.shown.passages)
            )  # fmt: skip
            assert (seen.shown.prompt, seen.shown.summary, seen.since) == (
                anew.shown.prompt, anew.shown.summary, anew.since
            )  # fmt: skip
            live = [message for message in record.live if message[3]]
            assert set(seen.shown.whole) == {
                "a " + m[3].split("] a ")[1].split("\n")[0] for m in live if "…" not in m[3]
            }


@settings(deadline=None)
@given(
    st.integers(0, 3), st.integers(1, 8), st.integers(0, 3), st.booleans(), st.booleans(),
    st.sampled_from([0.0, -3600.0, 3600.0]),
)  # fmt: skip
def test_the_turns_after_a_compression_and_those_that_it_kept_at_the_end_are_in_the_context(
    head: int, tail: int, more: int, keeps_times: bool, merged: bool, sender_ahead_s: float
) -> None:
    with TemporaryDirectory() as folder:
        record = Record(Path(folder), keeps_times, sender_ahead_s)
        for _ in range(8):
            record.turn(None)
        reader = ContextReader(Path(folder), 100)
        assert reader.read(SESSION, 60).since is None, "nothing was compressed"
        for _ in range(2):
            record.compress(head, tail, merged)
            kept = {said_in(content) for _, role, content, *_ in record.live if role == "user"}
            after = record.live[head + (not merged) :]
            answered = {said_in(content) for _, role, content, *_ in after if role == "assistant"}
            since = reader.read(SESSION, 60).since
            assert since is not None
            for question, stored in record.stored.items():
                number = question.split()[-1].rstrip("?")
                carried = question in kept or f"Ship number {number} is at sea." in answered
                if stored < since.timestamp():
                    assert not carried or question in {said_in(content) for _, _, content, *_ in record.live[:head]}
                else:
                    assert carried
            for _ in range(more):
                record.turn(None)
            assert reader.read(SESSION, 60).since == since


def test_the_prompt_is_read_where_each_host_keeps_it(record: Record) -> None:
    record.turn(None)
    shown = ContextReader(record.home, 100).read(SESSION, 60).shown
    assert "\nThe lamp is green.\n" in shown.prompt
    assert ContextReader(record.home, 0).read(SESSION, 60) == Context()


def test_where_the_record_says_nothing_the_context_seems_empty(tmp_path: Path) -> None:
    assert ContextReader(tmp_path, 100).read(SESSION, 60) == Context()
    (tmp_path / "state.db").write_bytes(b"this is no database" * 100)
    assert ContextReader(tmp_path, 100).read(SESSION, 60) == Context()


def test_a_message_that_was_changed_when_it_was_kept_leaves_the_boundary_unknown(record: Record) -> None:
    for _ in range(5):
        record.turn(None)
    record.compress(0, 4)
    number = record.live[1][0]
    record("update messages set content = 'What of it?' where id = ?", number)
    assert ContextReader(record.home, 100).read(SESSION, 60).since is None


def open_files() -> list[str]:
    return [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the open files of a process are read from /proc")
def test_a_reader_leaves_no_record_open(record: Record) -> None:
    record.turn("a lamp")
    assert list(ContextReader(record.home, 100).read(SESSION, 60).shown.whole) == ["a lamp"]
    assert not [name for name in open_files() if "state.db" in name]


def test_a_record_that_is_replaced_locked_or_of_an_older_host_is_read_again_when_it_can_be(record: Record) -> None:
    reader, path = ContextReader(record.home, 100), record.home / "state.db"
    record.turn("a lamp")
    assert reader.read(SESSION, 60).shown.whole
    with closing(sqlite3.connect(path, isolation_level=None)) as host:
        host.execute("begin exclusive")
        assert reader.read(SESSION, 0.05) == Context()
    other = record.home / "other"
    other.mkdir()
    (new := Record(other, record.keeps_times, clock=1_900_000_000.0)).turn("a buoy")
    os.replace(other / "state.db", path)
    assert list(reader.read(SESSION, 60).shown.whole) == ["a buoy"]
    record("alter table messages rename column api_content to old")
    assert reader.read(SESSION, 60) == Context()
    record("alter table messages rename column old to api_content")
    path.rename(other / "state.db")
    assert reader.read(SESSION, 60) == Context()
    new.turn("a pier")
    (other / "state.db").rename(path)
    assert list(reader.read(SESSION, 60).shown.whole) == ["a buoy", "a pier"]


def test_a_record_that_takes_too_long_or_holds_more_than_a_context_seems_empty(record: Record) -> None:
    for _ in range(3):
        record.turn("a lamp")
    record(
        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 20000) insert into messages"
        " (session_id, role, content, timestamp, active) select ?, 'user', 'text', 1.0, 0 from n",
        SESSION,
    )
    assert ContextReader(record.home, 100).read(SESSION, 0.0) == Context()
    assert ContextReader(record.home, 100).read(SESSION, 60).shown.whole
    record("update messages set content = ? where id = 1", "x" * CHARS_MAX)
    assert ContextReader(record.home, 100).read(SESSION, 60) == Context()


@pytest.mark.parametrize("session", ["", "\0", "\ud800", "s" * 1_000_000])
def test_any_id_of_a_session_can_be_asked_for(record: Record, session: str) -> None:
    record.turn("a lamp")
    assert not ContextReader(record.home, 100).read(session, 60).shown.whole
    assert state_db.messages(record.home, session) == []
