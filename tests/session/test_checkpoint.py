"""A checkpoint before a compression: which turns of the messages go into the outbox, and when it fails."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint

from hermes_memory_pgvector import files
from hermes_memory_pgvector.errors import CheckpointFailed
from hermes_memory_pgvector.model import SessionEnded, TurnTaken
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.settings import Settings

ALPS, MONT_BLANC = "Which mountain is the highest one of the Alps?", "It is Mont Blanc, with 4806 metres."
BASEL, RHINE = "Which river flows through the city of Basel?", "The Rhine flows through it."


def messages(*texts: str) -> list[dict[str, Any]]:
    """Questions and answers by turns."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {"dsn": database, "embed_url": endpoint.url, "embed_model": "test", "batch_linger_s": 0, **changed}
        running.append(acquire(Settings(**values), tmp_path))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., None]:
    """Write the host's record of the session, in which some messages may be `compacted`."""

    def write(*texts: str, compacted: int = 0) -> None:
        with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
            database.execute(
                "create table messages (id integer primary key, session_id, role, content, tool_calls, active, "
                "compacted, timestamp)"
            )
            database.execute("create table sessions (id, parent_session_id)")
            for place, message in enumerate(messages(*texts)):
                values = message["role"], message["content"], int(place < compacted)
                database.execute(
                    "insert into messages (session_id, role, content, active, compacted) values ('s1', ?, ?, 1, ?)",
                    values,
                )

    return write


def talk(runtime: Runtime, context: str = "primary") -> Conversation:
    return Conversation(runtime.context, Identity(), "s1", context)


def said(runtime: Runtime, database: str) -> list[str]:
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        return [row[0] for row in connection.execute("select content from conversations order by id")]


def test_a_turn_that_was_not_handed_over_is_on_disk_and_later_hooks_do_not_double_it(
    start: Callable[..., Runtime], record: Callable[..., None], database: str
) -> None:
    record(ALPS, MONT_BLANC)
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn(ALPS)
    runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    assert runtime.writer.counters.accepted == 1
    conversation.take_turn(ALPS, MONT_BLANC)
    conversation.replay.end(messages(ALPS, MONT_BLANC))
    runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    assert said(runtime, database) == [ALPS, MONT_BLANC]


def test_text_beside_a_tool_call_is_not_the_answer_of_the_turn_that_runs(
    start: Callable[..., Runtime], record: Callable[..., None], database: str
) -> None:
    record(ALPS)
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn(ALPS)
    beside = {"role": "assistant", "content": "I will look it up in the atlas.", "finish_reason": "tool_calls"}
    runtime.checkpoint(conversation.replay, [*messages(ALPS), beside])
    conversation.take_turn(ALPS, MONT_BLANC)
    assert said(runtime, database) == [ALPS, MONT_BLANC]


@pytest.mark.parametrize("recorded", [True, False])
def test_after_an_earlier_compression_no_answer_is_given_to_the_question_of_another_turn(
    start: Callable[..., Runtime], record: Callable[..., None], database: str, recorded: bool
) -> None:
    if recorded:
        record("What is the capital of France, by the way?", "It is Paris.", ALPS, MONT_BLANC, compacted=2)
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn(BASEL)
    # The summary between the first question and the second answer is not among the messages.
    runtime.checkpoint(
        conversation.replay, messages("What is the capital of France, by the way?", MONT_BLANC, BASEL, RHINE)
    )
    assert said(runtime, database) == [BASEL, RHINE]


@pytest.mark.parametrize(
    ("settings", "context"),
    [
        ({"sync_turns": False}, "primary"),
        ({}, "cron"),
        ({"off_record": True}, "primary"),
        ({"allowed_themes": ["garden"]}, "primary"),
    ],
)
def test_what_the_operator_keeps_from_being_stored_needs_no_checkpoint(
    start: Callable[..., Runtime], database: str, settings: dict[str, Any], context: str
) -> None:
    runtime = start(**settings)
    conversation = talk(runtime, context)
    conversation.open_turn(ALPS)
    runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    assert runtime.writer.counters.offered == 0


def test_what_is_off_the_record_needs_no_checkpoint(start: Callable[..., Runtime], record: Callable[..., None]) -> None:
    record(ALPS, MONT_BLANC)
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn("off the record")
    conversation.open_turn(ALPS)
    runtime.checkpoint(conversation.replay, messages("off the record", "Fine.", ALPS, MONT_BLANC))
    assert runtime.writer.counters.offered == 0


def test_a_checkpoint_syncs_events_from_before_it(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(files.os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    runtime = start(dsn="postgresql://nobody@127.0.0.1:1/none")
    conversation = talk(runtime)
    conversation.take_turn(ALPS, MONT_BLANC)
    folder = runtime._spool.folder
    assert folder is not None
    assert not synced
    runtime.checkpoint(conversation.replay, [])
    assert synced == [str(path) for path in (folder / "00000001.log", folder, folder.parent, folder.parent.parent)]


def test_a_checkpoint_fails_when_the_disk_does(start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    runtime = start(dsn="postgresql://nobody@127.0.0.1:1/none")
    conversation = talk(runtime)
    conversation.take_turn(ALPS, MONT_BLANC)
    monkeypatch.setattr(files.os, "fsync", fails)
    with pytest.raises(CheckpointFailed, match="not safe on disk: Input/output error"):
        runtime.checkpoint(conversation.replay, [])


def test_a_checkpoint_fails_when_the_outbox_refuses_the_turns_or_is_in_memory(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn(ALPS)
    with monkeypatch.context() as patch:
        patch.setattr(runtime._spool, "append", lambda event: not isinstance(event, SessionEnded | TurnTaken))
        with pytest.raises(CheckpointFailed, match="refuses the turns"):
            runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    volatile = start(spool_dir="/dev/null/spool")
    with pytest.raises(CheckpointFailed, match="in memory only; set spool_dir"):
        volatile.checkpoint(talk(volatile).replay, [])


def test_a_checkpoint_stores_a_turn_that_the_outbox_refused_when_it_was_handed_over(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    conversation = talk(runtime)
    conversation.open_turn(ALPS)
    with monkeypatch.context() as patch:
        patch.setattr(runtime._spool, "append", lambda event: False)
        conversation.take_turn(ALPS, MONT_BLANC)
        with pytest.raises(CheckpointFailed, match="refuses the turns"):
            runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    runtime.checkpoint(conversation.replay, messages(ALPS, MONT_BLANC))
    assert said(runtime, database) == [ALPS, MONT_BLANC]


def test_a_checkpoint_fails_on_messages_that_are_none(start: Callable[..., Runtime]) -> None:
    runtime = start()
    wrong: Any = [7]
    with pytest.raises(CheckpointFailed, match="AttributeError"):
        runtime.checkpoint(talk(runtime), wrong)
