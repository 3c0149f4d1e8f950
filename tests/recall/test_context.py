"""What the record of a host says of a context, in the forms of both hosts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_memory_pgvector.recall.context import Context, ContextReader

SESSION = "s1"
SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Ships were discussed."
PROMPT = "You are an agent.\n\nMEMORY\nThe lamp is green.\n§\nThe harbour is deep.\n\nTools"


@dataclass
class Record:
    """A host's `state.db`. With `keeps_times`, copies of messages keep the times of these, as on one host."""

    home: Path
    keeps_times: bool
    clock: float = 1_800_000_000.0
    live: list[tuple[int, str, str, str | None, float]] = field(default_factory=list)
    began: dict[str, float] = field(default_factory=dict)
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
        self._add("user", question, sent)
        self.began[question] = self.clock
        if answered:
            self._add("assistant", f"Ship number {self.turns} is at sea.", None)

    def undo(self) -> None:
        while self.live:
            number, role, *_ = self.live.pop()
            self("update messages set active = 0 where id = ?", number)
            if role == "user":
                return

    def compress(self, head: int, tail: int) -> None:
        """Keep the first and the last messages as copies, with a summary between them."""
        kept = [*self.live[:head], None, *self.live[max(head, len(self.live) - tail) :]]
        self("update messages set active = 0, compacted = 1 where active = 1")
        self.live = []
        for message in kept:
            if message is None:
                self._add("assistant", SUMMARY, None)
            else:
                _, role, content, sent, at = message
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
    | st.tuples(st.just("compress"), st.integers(0, 3), st.integers(1, 6)),
    max_size=14,
)


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
            seen, anew = following.read(SESSION), ContextReader(Path(folder), 100).read(SESSION)
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


@given(st.integers(0, 3), st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_the_turns_after_a_compression_and_those_that_it_kept_at_the_end_are_in_the_context(
    head: int, tail: int, more: int, keeps_times: bool
) -> None:
    with TemporaryDirectory() as folder:
        record = Record(Path(folder), keeps_times)
        for _ in range(8):
            record.turn(None)
        reader = ContextReader(Path(folder), 100)
        assert reader.read(SESSION).since is None, "nothing was compressed"
        for _ in range(2):
            record.compress(head, tail)
            kept = {content for _, role, content, *_ in record.live if role == "user"}
            answered = {content for _, role, content, *_ in record.live[head + 1 :] if role == "assistant"}
            since = reader.read(SESSION).since
            assert since is not None
            for question, began in record.began.items():
                number = question.split()[-1].rstrip("?")
                carried = question in kept or f"Ship number {number} is at sea." in answered
                if began < since.timestamp():
                    assert not carried or question in {content for _, _, content, *_ in record.live[:head]}
                else:
                    assert carried
            for _ in range(more):
                record.turn(None)
            assert reader.read(SESSION).since == since


def test_the_prompt_is_read_where_each_host_keeps_it(record: Record) -> None:
    record.turn(None)
    shown = ContextReader(record.home, 100).read(SESSION).shown
    assert "\nThe lamp is green.\n" in shown.prompt
    assert ContextReader(record.home, 0).read(SESSION) == Context()


def test_where_the_record_says_nothing_the_context_seems_empty(tmp_path: Path) -> None:
    assert ContextReader(tmp_path, 100).read(SESSION) == Context()
    (tmp_path / "state.db").write_bytes(b"this is no database" * 100)
    assert ContextReader(tmp_path, 100).read(SESSION) == Context()


def test_a_message_that_was_changed_when_it_was_kept_leaves_the_boundary_unknown(record: Record) -> None:
    for _ in range(5):
        record.turn(None)
    record.compress(0, 4)
    number = record.live[1][0]
    record("update messages set content = 'What of it?' where id = ?", number)
    assert ContextReader(record.home, 100).read(SESSION).since is None
