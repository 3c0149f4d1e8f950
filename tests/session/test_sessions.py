"""What is taken back is withdrawn, what is off the record is not stored, and jobs only read."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import numpy  # noqa: F401 - hypothesis fails while a thread of ours imports it
import psycopg
import pytest
from host_record import Record
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from logins import with_and_without_row_security
from waiting import wait_for

from hermes_memory_pgvector.errors import Unavailable
from hermes_memory_pgvector.files import mark_name
from hermes_memory_pgvector.hosts import state_db
from hermes_memory_pgvector.hosts.tool_calls import read_turn
from hermes_memory_pgvector.mirror.home import Home
from hermes_memory_pgvector.model import Add
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session.conversation import Conversation
from hermes_memory_pgvector.session.identity import Identity
from hermes_memory_pgvector.session.off_record import STAYS_OFF, SWITCHED_OFF, SWITCHED_ON, notice, on_record
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset

SUMMARY = ("[CONTEXT COMPACTION] There was talk of slow hosts.", "")
KEPT = f"[PRIOR CONTEXT — for reference only]\n{{}}\n\n[END OF PRIOR CONTEXT — SUMMARY BELOW]\n\n{SUMMARY[0]}"


def turn(number: int) -> tuple[str, str]:
    return f"question {number}: why is host-{number} slow today?", f"answer {number}: its disk is full"


def transcript(*turns: tuple[str, str]) -> list[dict[str, str]]:
    return [
        {"role": role, "content": text}
        for pair in turns
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def talk(runtime: Runtime, session: str = "s", context: str = "primary", **identity: str) -> Conversation:
    return Conversation(runtime.context, Identity(**identity), session, context)


def take(conversation: Conversation, *turns: tuple[str, str], author: str = "") -> None:
    for user, answer in turns:
        conversation.open_turn(user, author)
        conversation.take_turn(user, answer)


@contextmanager
def away(home: Path) -> Iterator[Runtime]:
    """A process of the home that does not reach its database and leaves its spool behind."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        dsn = f"postgresql://x@127.0.0.1:{nobody.getsockname()[1]}/x"
        runtime = acquire(Settings(dsn=dsn, connect_timeout_s=0.5, retry_max_s=0.2), home)  # type: ignore[arg-type]
        try:
            yield runtime
        finally:
            release(runtime)


def stored(runtime: Runtime, database: str, table: str = "conversations") -> list[str]:
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        order = "ts" if table == "conversations" else "id"
        return [row[0] for row in connection.execute(f"select content from {table} order by {order}, id")]


def texts(*turns: tuple[str, str]) -> list[str]:
    return [text for pair in turns for text in pair]


def test_turns_that_are_taken_back_are_withdrawn_with_their_questions(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    for number in range(4):
        record.say("s", turn(number))
        take(one, turn(number))
    record.undo("s", 2)
    one.replay.take_back()
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0), turn(1))
    # What the host replays at the end is older than the undo: nothing comes back.
    one.replay.end(transcript(*map(turn, range(4))))
    assert stored(runtime, database) == texts(turn(0), turn(1))
    take(one, turn(5))
    assert stored(runtime, database) == texts(turn(0), turn(1), turn(5))


@pytest.mark.parametrize("switch", ["off the record", "on the record"])
def test_a_switch_that_the_host_has_not_recorded_yet_comes_after_what_was_taken_back(
    start: Callable[..., Runtime], record: Record, database: str, switch: str
) -> None:
    runtime = start()
    if switch == "off the record":
        take(talk(runtime), turn(0))
    else:
        talk(runtime).open_turn("off the record")
    record.say("s", turn(0))
    record.undo("s")
    one = talk(runtime)
    one.open_turn(switch)
    one.replay.take_back()
    assert stored(runtime, database) == []
    if switch == "on the record":
        # What was off the record gets into no file.
        files = (path for path in runtime.home.state.rglob("*") if path.is_file())
        assert not [path for path in files if turn(0)[1].encode() in path.read_bytes()]


def test_a_turn_at_the_end_of_a_long_session_is_withdrawn(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    # Most messages of an agent at work call tools.
    record.call("s", state_db.NEWEST_MAX)
    for number in range(2):
        record.say("s", turn(number))
        take(one, turn(number))
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0))


def test_a_turn_with_an_image_that_was_taken_back_is_not_replayed(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one, parts = talk(runtime), [{"type": "text", "text": turn(1)[0]}, {"type": "image_url"}]
    # What a host compresses in place it records as JSON where it has parts.
    record.say("s", ("\0json:" + json.dumps(parts), turn(1)[1]))
    record.say("s", ("\0json:{", "and what is written there?"))
    assert [m["content"] for m in state_db.messages(runtime.home.path, "s")][::2] == [
        f"[1 image] {turn(1)[0]}",
        "",
    ]
    record.undo("s", 2)
    one.replay.take_back()
    one.replay.end([{"role": "user", "content": parts}, {"role": "assistant", "content": turn(1)[1]}])
    assert stored(runtime, database) == []


def test_the_same_words_said_again_stay_and_other_sessions_and_themes_are_not_touched(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one, other = talk(runtime), talk(runtime, "t")
    stranger = talk(runtime, gateway_session_key="garden", platform="api_server")
    for conversation in (one, other, stranger):
        take(conversation, turn(1))
    answer = turn(1)[1]
    record.say("s", turn(1))
    record.say("s", ("and why is the other one slow, please tell me?", answer))
    take(one, ("and why is the other one slow, please tell me?", answer))
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(1), turn(1), turn(1))
    record.say("s", ("and once more: why is the other one slow?", answer))
    take(one, ("and once more: why is the other one slow?", answer))
    talk(runtime).replay.take_back()
    assert stored(runtime, database)[-2:] == ["and once more: why is the other one slow?", answer]
    assert len(stored(runtime, database)) == 8


def test_a_question_that_is_taken_back_without_an_answer_is_not_the_same_one_that_has_one(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one, question = talk(runtime), "please tell me once more: why is host-1 so slow today, and what can I do about it?"
    for said in ((question, "its disk is full"), (question, ""), (question, "")):
        record.say("s", said)
        take(one, said)
    assert stored(runtime, database) == [question, "its disk is full", question, question]
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == [question, "its disk is full", question]
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == [question, "its disk is full"]


def test_turns_that_were_compressed_are_not_taken_back(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    for number in range(3):
        record.say("s", turn(number))
        take(one, turn(number))
    record.compact("s")
    # One host keeps the carried tail twice, the old copy as if it were taken back.
    record.say("s", turn(2))
    record.undo("s")
    record.say("s", turn(2))
    one.replay.take_back()
    assert stored(runtime, database) == texts(*map(turn, range(3)))


def test_an_answer_that_a_compression_put_into_one_message_with_its_summary_is_not_taken_back(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    """One host marks the answer as taken back then, when its question was compressed."""
    runtime = start()
    one = talk(runtime)
    for number in (0, 1):
        record.say("s", turn(number))
        take(one, turn(number))
    record.undo("s")
    one.replay.take_back()
    record.say("s", turn(2))
    take(one, turn(2))
    record.compact("s")
    record.keep_with_summary("s", turn(2)[1], KEPT.format(turn(2)[1]))
    record.say("s", turn(3))
    take(one, turn(3))
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0), turn(2), turn(3))
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0), turn(2))


def test_a_turn_that_is_said_while_the_record_is_read_stays(
    start: Callable[..., Runtime], record: Record, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    one = talk(runtime)
    first, again = ((f"please deploy host-{number} now", "the deployment went through") for number in (1, 2))
    record.say("s", first)
    take(one, first)
    record.undo("s")
    read = state_db.messages

    def meanwhile(home: Path, session_id: str) -> list[dict[str, Any]]:
        found = read(home, session_id)
        take(one, again)
        return found

    monkeypatch.setattr(state_db, "messages", meanwhile)
    one.replay.take_back()
    assert stored(runtime, database) == list(again)


def test_a_turn_that_is_handed_over_after_it_was_taken_back_is_not_stored(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    record.say("s", turn(1))
    record.undo("s")
    one.replay.take_back()
    one.take_turn(*turn(1))
    assert stored(runtime, database) == []
    record.say("s", turn(1))
    take(one, turn(1))
    assert stored(runtime, database) == texts(turn(1))


def test_a_question_that_is_asked_again_after_it_was_taken_back_stays(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one, again = talk(runtime), (turn(1)[0], "its disk is full, and its memory too")
    # Its answer was interrupted: it is never handed over.
    one.open_turn(turn(1)[0])
    record.say("s", turn(1))
    record.undo("s")
    one.replay.take_back()
    one.open_turn(again[0])
    # Another look at the record, while the host has not written anything of the new turn.
    one.replay.take_back()
    one.take_turn(*again)
    assert stored(runtime, database) == list(again)


def test_a_turn_during_which_the_session_is_compressed_stays(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    record.say("s", turn(1))
    # One host keeps the carried turn twice, the old copy as if it were taken back.
    record.undo("s")
    record.say("s", turn(1))
    one.replay.take_back()
    one.take_turn(*turn(1))
    assert stored(runtime, database) == texts(turn(1))


def test_turns_taken_back_while_no_agent_ran_are_withdrawn_by_the_next_one(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    take(talk(runtime), turn(1), turn(2))
    record.say("s", turn(1))
    record.say("s", turn(2))
    record.undo("s")
    assert stored(runtime, database) == texts(turn(1), turn(2))
    talk(runtime).replay.take_back()
    assert stored(runtime, database) == texts(turn(1))


def test_turns_taken_back_before_the_next_message_began_another_session_are_withdrawn(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime, ann, ben = start(), "agent:main:signal:dm:ann", "agent:main:signal:dm:ben"

    def chat(session: str, key: str) -> Conversation:
        return talk(runtime, session, platform="signal", gateway_session_key=key, chat_id=key, chat_type="dm")

    for session, key, number in (("s", ann, 1), ("other", ben, 2), ("newer", ann, 3)):
        record.begin(session, "", key=key)
        record.say(session, turn(number))
        take(chat(session, key), turn(number))
    record.undo("s")
    record.undo("other")
    record.begin("next", "newer", end_reason="session_reset", key=ann)
    assert stored(runtime, database) == texts(turn(1), turn(2), turn(3))
    chat("next", ann).replay.take_back()
    assert stored(runtime, database) == texts(turn(2), turn(3))


def test_a_session_of_a_compressed_one_withdraws_what_it_carried_on_and_a_branch_does_not(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    for number in (1, 2):
        record.say("s", turn(number))
        take(one, turn(number))
    one.go_on("s2", "s", anew=False, reason="compression")
    record.say("s2", turn(2))
    record.undo("s2")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(1))
    one.go_on("s3", "s2", anew=False, reason="branch")
    record.say("s3", turn(1))
    record.undo("s3")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(1))


@pytest.mark.parametrize("anew", [False, True])
def test_a_turn_that_was_carried_on_is_withdrawn_by_an_agent_that_began_after_the_compression(
    start: Callable[..., Runtime], record: Record, database: str, anew: bool
) -> None:
    runtime, key = start(), "agent:main:signal:dm:ann"

    def chat(session: str) -> Conversation:
        return talk(runtime, session, platform="signal", gateway_session_key=key, chat_id=key, chat_type="dm")

    record.begin("s", "", key=key)
    for number in (1, 2, 3):
        record.say("s", turn(number))
        take(chat("s"), turn(number))
    record.begin("s2", "s", end_reason="compression", key=key)
    record.say("s2", SUMMARY)
    record.say("s2", turn(3))
    record.undo("s2")
    if anew:
        record.begin("s3", "s2", end_reason="session_reset", key=key)
    chat("s3" if anew else "s2").replay.take_back()
    assert stored(runtime, database) == texts(turn(1), turn(2))
    record.begin("branch", "s", model_config='{"_branched_from": "s"}', end_reason="compression", key=key)
    record.say("branch", turn(2))
    record.undo("branch")
    chat("branch").replay.take_back()
    assert stored(runtime, database) == texts(turn(1), turn(2)), "the turn is that of the session before"


def test_a_session_of_a_compressed_one_takes_back_no_equal_answer_of_the_one_before(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    deployed = [(f"please deploy host-{number} now", "the deployment went through") for number in range(4)]
    for said in (*deployed[:3], turn(1)):
        record.say("s", said)
        take(one, said)
    one.go_on("s2", "s", anew=False, reason="compression")
    for said in (SUMMARY, turn(1), deployed[3]):
        record.say("s2", said)
    take(one, deployed[3])
    record.undo("s2")
    one.replay.take_back()
    assert stored(runtime, database) == texts(*deployed[:3], turn(1))
    record.undo("s2")
    one.replay.take_back()
    assert stored(runtime, database) == texts(*deployed[:3])


def test_turns_of_a_compressed_session_that_the_host_deleted_are_not_withdrawn(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, turn(1))
    one.go_on("s2", "s", anew=False, reason="compression")
    again = (turn(2)[0], turn(1)[1])
    record.say("s2", SUMMARY)
    record.say("s2", again)
    take(one, again)
    record.undo("s2")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(1))


@pytest.mark.parametrize("times", [1, 3])
def test_a_turn_that_a_compression_in_place_carried_on_is_withdrawn(
    start: Callable[..., Runtime], record: Record, database: str, times: int
) -> None:
    runtime = start()
    one = talk(runtime)
    for number in range(5):
        record.say("s", turn(number))
        take(one, turn(number))
    for _ in range(times):
        record.compact("s")
        for said in (turn(0), SUMMARY, turn(3), turn(4)):
            record.say("s", said)
    for left in (4, 3):
        record.undo("s")
        one.replay.take_back()
        assert stored(runtime, database) == texts(*map(turn, range(left)))


def test_a_turn_before_a_compression_in_place_stays_when_an_equal_one_after_it_is_taken_back(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    for said in (turn(0), turn(1)):
        record.say("s", said)
        take(one, said)
    record.compact("s")
    for said in (turn(0), SUMMARY, turn(1)):
        record.say("s", said)
    record.say("s", turn(1), took_s=0.1)
    take(one, turn(1))
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0), turn(1))


def test_a_replay_has_turns_that_a_compression_in_place_took_back_and_kept(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    """One host does both with the last turns. The memory may have been away when they were said."""
    record.say("s", turn(1))
    record.undo("s")
    record.say("s", SUMMARY)
    record.copy("s", turn(1))
    record.say("s", turn(2))
    record.undo("s")
    runtime = start()
    one = talk(runtime)
    one.replay.take_back()
    one.replay.end(transcript(turn(1), turn(2)))
    assert stored(runtime, database) == texts(turn(1))


def test_a_turn_that_a_compression_in_place_carried_on_is_withdrawn_though_it_was_said_again_and_taken_back(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    for said in (turn(0), turn(1), turn(1)):
        record.say("s", said, took_s=0.1)
        take(one, said)
    record.undo("s")
    one.replay.take_back()
    record.compact("s")
    for said in (SUMMARY, turn(1)):
        record.say("s", said)
    record.undo("s")
    one.replay.take_back()
    assert stored(runtime, database) == texts(turn(0))


@pytest.mark.parametrize("branched", [True, False])
def test_a_transcript_that_a_host_has_doubled_when_its_session_was_resumed_adds_no_turn(
    branched: bool, start: Callable[..., Runtime], database: str
) -> None:
    """The copies have the times of the originals; what is said again has another one."""
    runtime = start()
    one = talk(runtime)
    said = [turn(0), turn(1), turn(1), turn(2)]
    timed = [{**message, "timestamp": 1_790_000_000.5 + place} for place, message in enumerate(transcript(*said[:3]))]
    take(one, turn(0))
    if branched:
        one.go_on("s2", "s", anew=False, reason="branch")
    one.open_turn(turn(2)[0])
    one.replay.end([*timed, *timed, *transcript(turn(2))])
    one.take_turn(*turn(2))
    assert sorted(stored(runtime, database)) == sorted(texts(*said))


def test_a_branch_that_is_resumed_by_another_process_repeats_nothing_of_its_parent(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime = start()
    take(talk(runtime), turn(1))
    record.begin("s", "")
    record.begin("s2", "s")
    talk(runtime, "s2").replay.end(transcript(turn(1), turn(2)))
    assert stored(runtime, database) == [*texts(turn(1)), *texts(turn(2))]
    elsewhere = talk(runtime, "other")
    elsewhere.go_on("s2", "other", anew=False, reason="resume")
    elsewhere.open_turn(turn(3)[0])
    elsewhere.replay.end(transcript(turn(1), turn(2), turn(3)))
    assert stored(runtime, database) == texts(turn(1), turn(2), turn(3))
    # The session that was left for the resumed one is none of its parents.
    take(elsewhere, turn(4))
    assert stored(runtime, database)[-1] == turn(4)[1]
    with psycopg.connect(database) as connection:
        parents = connection.execute("select distinct parent_session_id from conversations").fetchall()
    assert parents == [("",)]


def test_a_turn_that_was_taken_back_while_it_waited_with_a_dead_process_does_not_come_back(
    start: Callable[..., Runtime], record: Record, database: str, tmp_path: Path
) -> None:
    runtime = start(adopt_interval_s=1, pool_max=2)
    take(talk(runtime), turn(1))
    assert stored(runtime, database) == texts(turn(1))
    with away(tmp_path) as dead:
        take(talk(dead), turn(2))
    for number in (1, 2):
        record.say("s", turn(number))
    record.undo("s")
    talk(runtime).replay.take_back()
    take(talk(runtime), turn(3))
    # Its spool is adopted now, after the withdrawal.
    deadline = time.monotonic() + 20
    while runtime.writer.counters.adopted < 1 and time.monotonic() < deadline:
        runtime.writer.flush(1, orphans=True)
    assert runtime.writer.counters.adopted == 1
    assert stored(runtime, database) == texts(turn(1), turn(3))


def test_a_turn_that_waited_while_another_process_replayed_it_is_stored_once(
    start: Callable[..., Runtime], database: str, tmp_path: Path
) -> None:
    runtime = start(adopt_interval_s=1, pool_max=2)
    with away(tmp_path) as other:
        take(talk(other), turn(1))
        # Another process resumes the session, and ends it: it replays what the host has in its record.
        talk(runtime).replay.end(transcript(turn(1), turn(2)))
        assert stored(runtime, database) == texts(turn(1), turn(2))
    deadline = time.monotonic() + 20
    while runtime.writer.counters.adopted < 1 and time.monotonic() < deadline:
        runtime.writer.flush(1, orphans=True)
    assert runtime.writer.counters.adopted == 1
    assert sorted(stored(runtime, database)) == sorted(texts(turn(1), turn(2)))


RETRIED = "Which pump is in the cellar of the house?"
FIRST, SECOND = "It is the old one, a P-12.", "It is the new one, a P-80."


@pytest.mark.parametrize(
    ("before", "platform", "left"),
    [
        pytest.param([], "cli", [RETRIED, SECOND], id="retried"),
        pytest.param([(RETRIED, FIRST)], "cli", [RETRIED, FIRST, RETRIED, SECOND], id="asked twice"),
        # A host may add something to what it hands over.
        pytest.param([(RETRIED, "The old")], "cli", [RETRIED, FIRST, RETRIED, SECOND], id="recorded otherwise"),
        # A host may cut a transcript without a summary.
        pytest.param(
            [("Which pump?", "None."), ("Why?", "It broke.")], "cli", [RETRIED, FIRST, RETRIED, SECOND], id="cut"
        ),
        pytest.param([(f"x\n\n{RETRIED}", FIRST)], "cli", [RETRIED, FIRST, RETRIED, SECOND], id="merged"),
        # A client may send each question alone.
        pytest.param([], "api_server", [RETRIED, FIRST, RETRIED, SECOND], id="client of the API"),
        pytest.param([("[CONTEXT COMPACTION] Pumps.", "")], "cli", [RETRIED, FIRST, RETRIED, SECOND], id="compressed"),
    ],
)
def test_the_answer_is_withdrawn_whose_question_was_asked_again_in_its_place(
    before: list[tuple[str, str]], platform: str, left: list[str], start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    first, messages = talk(runtime, platform=platform), transcript(turn(0), (RETRIED, FIRST))
    take(first, turn(0))
    first.open_turn(RETRIED)
    first.take_turn(RETRIED, FIRST, record=read_turn(messages, RETRIED))
    # A messenger's next message may be taken by another object.
    one = talk(runtime, platform=platform)
    one.open_turn(RETRIED)
    messages = transcript(turn(0), *before, (RETRIED, SECOND))
    one.take_turn(RETRIED, SECOND, record=read_turn(messages, RETRIED))
    assert stored(runtime, database) == texts(turn(0)) + left
    one.replay.end(transcript(turn(0), (RETRIED, SECOND)))
    assert stored(runtime, database) == texts(turn(0)) + left


def test_a_message_that_was_sent_twice_in_a_second_keeps_both_answers(
    start: Callable[..., Runtime], database: str
) -> None:
    """A gateway keeps the times of a messenger for what people send, and none for answers."""
    runtime, said = start(), [(turn(0)[0], turn(number)[1]) for number in (0, 1)]
    sent = {"timestamp": 1_790_000_000.0}
    timed = [{**message, **(sent if message["role"] == "user" else {})} for message in transcript(*said)]
    talk(runtime).replay.end(timed)
    assert sorted(stored(runtime, database)) == sorted(texts(*said))


@pytest.mark.parametrize(
    ("before", "left"),
    [
        pytest.param([], [(RETRIED, SECOND)], id="taken back and retried"),
        # A host may cut a transcript without a summary.
        pytest.param([turn(2)], [(RETRIED, FIRST), turn(1), turn(2), (RETRIED, SECOND)], id="cut"),
    ],
)
def test_what_was_taken_back_right_before_a_question_is_asked_again_is_withdrawn_with_its_answer(
    before: list[tuple[str, str]],
    left: list[tuple[str, str]],
    start: Callable[..., Runtime],
    record: Record,
    database: str,
) -> None:
    """One host then removes all of it from its record, and tells of neither."""
    runtime, said = start(), list[tuple[str, str]]()
    for question, answer in [turn(0), (RETRIED, FIRST), turn(1), turn(2)]:
        said.append((question, answer))
        one = talk(runtime, platform="signal")
        one.open_turn(question)
        one.take_turn(question, answer, record=read_turn(transcript(*said), question))
    one = talk(runtime, platform="signal")
    one.open_turn(RETRIED)
    record.say("s", turn(0))
    one.take_turn(RETRIED, SECOND, record=read_turn(transcript(*(before or [turn(0)]), (RETRIED, SECOND)), RETRIED))
    assert stored(runtime, database) == texts(turn(0), *left)


def test_what_a_host_adds_to_an_answer_that_it_hands_over_is_not_stored_and_its_replay_adds_no_turn(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one, (question, answer) = talk(runtime), turn(1)
    messages = transcript(turn(0), turn(1))
    take(one, turn(0))
    one.open_turn(question)
    one.take_turn(question, f"{answer}\n\nFiles that were not written: a.py", record=read_turn(messages, question))
    for conversation in (one, talk(runtime)):
        conversation.replay.end(messages)
    assert stored(runtime, database) == texts(turn(0), turn(1))


def test_an_answer_that_came_in_parts_is_stored_whole_and_once(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one, question = talk(runtime), turn(1)[0]
    parts = ["The disk of host-1 is full: the logs of March", "are still on it. Delete those."]
    rest = "[System: Your previous response was truncated by the output length limit. Continue.]"
    messages = [
        *transcript(turn(0), (question, parts[0])), {"role": "user", "content": rest},
        {"role": "assistant", "content": parts[1]},
    ]  # fmt: skip
    take(one, turn(0))
    one.open_turn(question)
    one.take_turn(question, " ".join(parts), record=read_turn(messages, question))
    for conversation in (one, talk(runtime)):
        conversation.replay.end(messages)
        assert conversation.replay.checkpoint([{**message, "finish_reason": "length"} for message in messages])
    assert stored(runtime, database) == [*texts(turn(0)), question, "\n".join(parts)]


def test_words_behind_the_command_of_a_skill_have_their_own_answer_also_when_they_were_said_before(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one, (question, answer) = talk(runtime), turn(1)
    skill = (
        '[IMPORTANT: The user has invoked the "garden" skill. The full skill content is loaded below.]\n\nCut the pear.'
        f"\n\nThe user has provided the following instruction alongside the skill invocation: {question}"
    )
    messages = transcript(turn(1), (skill, turn(2)[1]))
    take(one, turn(1))
    one.open_turn(question)
    one.take_turn(question, turn(2)[1], record=read_turn(messages, question))
    assert stored(runtime, database) == [question, answer, question, turn(2)[1]]


def test_a_replay_while_its_turn_is_handed_over_does_not_double_it(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    one, capture = talk(runtime), runtime.context.capture
    judge = capture.turn

    def replay_first(*given: Any, **marks: Any) -> Any:
        monkeypatch.setattr(capture, "turn", judge)
        ending = Thread(target=one.replay.end, args=(transcript(turn(1)),))
        ending.start()
        ending.join(10)
        return judge(*given, **marks)

    one.open_turn(turn(1)[0])
    monkeypatch.setattr(capture, "turn", replay_first)
    one.take_turn(*turn(1))
    assert stored(runtime, database) == texts(turn(1))


@pytest.mark.parametrize("second", [FIRST, SECOND])
def test_a_retried_turn_is_stored_once_when_the_session_ended_first(
    second: str, start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime, platform="cli")
    for answer in (FIRST, second):
        messages = transcript((RETRIED, answer))
        one.open_turn(RETRIED)
        if answer == second:
            one.replay.end(messages)
        one.take_turn(RETRIED, answer, record=read_turn(messages, RETRIED))
    assert stored(runtime, database) == [RETRIED, second]


def test_no_conversation_waits_while_it_is_seen_that_a_question_is_asked_again(
    start: Callable[..., Runtime], database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    one, home = talk(runtime), runtime.context
    judge, waits = home.capture.turn, list[bool]()

    def judged(*given: Any, **marks: Any) -> Any:
        waits.append(home.turn_lock.locked())
        return judge(*given, **marks)

    monkeypatch.setattr(home.capture, "turn", judged)
    for answer in (FIRST, SECOND):
        one.open_turn(RETRIED)
        messages = transcript(turn(0), turn(1), (RETRIED, answer))
        one.take_turn(RETRIED, answer, record=read_turn(messages, RETRIED))
    assert waits == [False] * 4
    assert stored(runtime, database) == [RETRIED, SECOND]


def test_a_branch_repeats_nothing_of_the_session_before_it_while_the_host_locks_its_record(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    runtime, said = start(), [turn(1), turn(2)]
    record.begin("s", "")
    one = talk(runtime)
    take(one, turn(1))
    one.open_turn(turn(2)[0])
    one.take_turn(*turn(2), record=read_turn(corrected(turn(2), "off the record: as it is", rows=False), turn(2)[0]))
    record.begin("branch", "s", model_config='{"_branched_from": "s"}')
    two = talk(runtime, "branch")
    with record.locked(), pytest.raises(Unavailable):
        two.replay.end(transcript(*said))
    two.replay.end(transcript(*said, turn(3)))
    assert stored(runtime, database) == texts(turn(1), turn(3))


def test_a_question_of_the_session_before_is_not_one_that_was_asked_again(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    told = read_turn(transcript((RETRIED, FIRST)), RETRIED)
    one.open_turn(RETRIED)
    one.take_turn(RETRIED, FIRST, record=told)
    one.go_on("t", "s", anew=True)
    one.open_turn(RETRIED)
    one.take_turn(RETRIED, FIRST, record=told)
    assert stored(runtime, database) == texts((RETRIED, FIRST), (RETRIED, FIRST))


def test_a_home_without_a_record_withdraws_nothing(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    take(talk(runtime), turn(1))
    talk(runtime).replay.take_back()
    assert stored(runtime, database) == texts(turn(1))
    (runtime.home.path / "state.db").write_text("this is no database")
    talk(runtime).replay.take_back()
    assert stored(runtime, database) == texts(turn(1))


def test_an_interrupted_turn_is_not_stored_and_a_late_one_is(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.open_turn(turn(2)[0])
    one.open_turn(turn(3)[0])
    one.take_turn(*turn(2))
    one.take_turn(*turn(3))
    one.open_turn("And what is the load of host-4, please tell me?")
    stopped = (
        "And what is the load of host-4, please tell me?",
        "Operation interrupted: handling API error (a timeout).",
    )
    one.replay.end(transcript((turn(1)[0], "answer 1: its disk, I thi"), turn(2), turn(3), stopped))
    assert stored(runtime, database) == texts(turn(2), turn(3))


@pytest.mark.parametrize(
    "notice",
    [
        "Your request was not processed. Send it again if you still want me to carry it out.",
        "This turn did not complete. Some actions may already have run; verify their effects before resending.\n",
        "Operation interrupted.",
    ],
)
def test_a_notice_in_place_of_an_answer_is_not_stored(
    notice: str, start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    resumed = talk(runtime)
    take(resumed, turn(3))
    quoted = (turn(4)[0], f"Another agent said to me: {notice}")
    resumed.replay.end(transcript((turn(1)[0], notice), turn(2), turn(3), quoted, (turn(5)[0], notice)))
    assert sorted(stored(runtime, database)) == sorted(texts(turn(2), turn(3), (quoted[0], quoted[1].strip())))


def test_a_turn_that_is_interrupted_after_a_late_one_is_not_stored(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.open_turn(turn(2)[0])
    one.take_turn(*turn(1))
    take(one, turn(3))
    one.replay.end(transcript(turn(1), (turn(2)[0], "answer 2: its disk, I thi"), turn(3)))
    assert stored(runtime, database) == texts(turn(1), turn(3))


def test_a_turn_that_was_replayed_before_an_earlier_one_came_late_is_stored_once(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.open_turn(turn(2)[0])
    one.replay.end(transcript(turn(2)))
    one.take_turn(*turn(1))
    one.take_turn(*turn(2))
    assert sorted(stored(runtime, database)) == sorted(texts(turn(1), turn(2)))


@with_and_without_row_security
def test_nothing_of_a_session_off_the_record_is_stored(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    file = runtime.home.path / "memories" / "MEMORY.md"
    file.write_text("an old secret")
    runtime.files.reconcile("default", "s")
    take(one, turn(1), ("Off the record.", "As you like, I keep nothing of it."), turn(2))
    assert notice("off the record", always_off=False) == SWITCHED_OFF
    file.write_text("a new secret of today")
    one.change_entry("replace", "memory", "a new secret of today", {"old_text": "old secret"})
    file.write_text("a new secret of today\n§\nanother secret of today")
    one.change_entry("add", "memory", "another secret of today", {})
    one.delegate("look into the secret of today, please", "it is a secret of today, indeed", "child")
    # Another provider object, as one host makes for each request, and a process that begins later.
    take(talk(runtime), turn(3))
    talk(runtime).replay.end(transcript(turn(1), ("off the record", "yes"), turn(2), turn(3)))
    one.go_on("s2", "s", anew=False, reason="compression")
    take(one, turn(4))
    assert stored(runtime, database) == texts(turn(1))
    assert stored(runtime, database, "memory_entries") == []
    take(one, ("on the record", "Welcome back, I keep notes again."), turn(5))
    assert notice("on the record", always_off=False) == SWITCHED_ON
    one.replay.end(transcript(("off the record", "yes"), turn(4), ("on the record", "Welcome back"), turn(5)))
    runtime.files.reconcile("default", "s")
    assert stored(runtime, database) == texts(turn(1), turn(5))
    assert stored(runtime, database, "memory_entries") == []
    with psycopg.connect(database) as connection:
        kept = connection.execute("select count(*) from memory_agent_edges").fetchone()
    assert kept == (0,)


@pytest.mark.parametrize("read", ["there", "gone", "locked"])
def test_turns_that_the_record_may_have_are_not_withdrawn_when_a_question_is_asked_without_them(
    start: Callable[..., Runtime], record: Record, database: str, read: str
) -> None:
    """A gateway goes on with an empty transcript when it cannot read its record."""
    runtime, said = start(), [turn(number) for number in range(3)]
    for end, pair in enumerate(said, 1):
        record.say("s", pair)
        one = talk(runtime, platform="signal")
        one.open_turn(pair[0])
        one.take_turn(*pair, record=read_turn(transcript(*said[:end]), pair[0]))
    if read != "there":
        # One host keeps the answer of a turn that is retried.
        record.undo("s", 2)
    again = (turn(0)[0], SECOND)
    record.say("s", again)
    one = talk(runtime, platform="signal")
    one.open_turn(again[0])
    with record.locked() if read == "locked" else nullcontext():
        one.take_turn(*again, record=read_turn(transcript(again), again[0]))
    assert stored(runtime, database) == texts(*([] if read == "gone" else said), again)


@pytest.mark.parametrize("said", ["off the record please", "off the record: my PIN is 1234"])
@pytest.mark.parametrize("before", [[turn(1)], []], ids=["later", "at once"])
def test_a_correction_of_a_turn_that_was_interrupted_then_takes_the_session_off_the_record(
    start: Callable[..., Runtime], database: str, said: str, before: list[tuple[str, str]]
) -> None:
    runtime, interrupted, (question, answer) = start(), turn(2)[0], turn(3)
    one, messages = talk(runtime), transcript(*before)
    for asked, answered in before:
        one.open_turn(asked)
        one.take_turn(asked, answered, record=read_turn(messages, asked))
    # No host hands over a turn that was interrupted.
    one.open_turn(interrupted)
    corrected = {
        "role": "user",
        "content": said,
        "api_content": f"[Context from the interrupted assistant response]\n{said}",
    }
    messages += [
        {"role": "user", "content": interrupted},
        {"role": "assistant", "content": "It"},
        corrected,
        *transcript(turn(3)),
    ]
    one.open_turn(question)
    one.take_turn(question, answer, record=read_turn(messages, question))
    assert one.late_switch() == said
    one.replay.end(messages)
    assert stored(runtime, database) == texts(*before)


MARK = "[OUT-OF-BAND USER MESSAGE — a direct message from the user, delivered mid-turn; not tool output]"


@pytest.mark.parametrize("row", [False, True])
@pytest.mark.parametrize("said", ["off the record please", "off the record: my PIN is 1234"])
def test_a_correction_that_the_host_puts_into_an_earlier_turn_takes_the_session_off_the_record(
    start: Callable[..., Runtime], database: str, said: str, row: bool
) -> None:
    runtime, (question, answer) = start(), turn(2)
    result = {"role": "tool", "tool_call_id": "1", "content": "42%"}
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "terminal"}, "id": "1"}]}
    asked, answered = transcript(turn(1))
    messages: list[dict[str, Any]] = [asked, called, result, answered]
    one = talk(runtime)
    for number in (1, 3):
        # It is heard once, also by the object that takes the next message of a messenger.
        one = talk(runtime)
        one.open_turn(turn(number)[0])
        one.take_turn(*turn(number), record=read_turn(messages, turn(number)[0]))
        messages += transcript(turn(3)) if number == 1 else transcript(turn(2))
    marked = f"{MARK}\n{said}\n[/OUT-OF-BAND USER MESSAGE]"
    if row:
        messages.insert(messages.index(result) + 1, {"role": "user", "content": marked, "display_kind": "steer"})
    else:
        result["content"] += f"\n\n{marked}"
    one.open_turn(question)
    one.take_turn(question, answer, record=read_turn(messages, question))
    assert one.late_switch() == said
    for conversation in (one, talk(runtime)):
        conversation.replay.end(messages)
    assert stored(runtime, database) == texts(turn(1), turn(3))
    messages += transcript(("on the record", "Welcome back, I keep notes again."))
    one.open_turn("on the record")
    one.take_turn("on the record", "Welcome back, I keep notes again.", record=read_turn(messages, "on the record"))
    messages += transcript(turn(4))
    one.open_turn(turn(4)[0])
    one.take_turn(*turn(4), record=read_turn(messages, turn(4)[0]))
    assert stored(runtime, database) == texts(turn(1), turn(3), turn(4))


@pytest.mark.parametrize("row", [False, True])
@pytest.mark.parametrize(
    ("said", "stays"), [("off the record please", True), ("off the record: my PIN is 1234", False)]
)
@with_and_without_row_security
def test_a_turn_that_is_taken_off_the_record_while_it_runs_is_not_stored(
    start: Callable[..., Runtime], database: str, said: str, stays: bool, row: bool
) -> None:
    runtime, (question, answer) = start(), turn(2)
    marked, call = f"{MARK}\n{said}\n[/OUT-OF-BAND USER MESSAGE]", {"function": {"name": "terminal"}, "id": "1"}
    result = {"role": "tool", "tool_call_id": "1", "content": "42%" if row else f"42%\n\n{marked}"}
    messages: list[dict[str, Any]] = [
        *transcript(turn(1)), {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]}, result,
        *([{"role": "user", "content": marked, "display_kind": "steer"}] if row else []),
        {"role": "assistant", "content": answer},
    ]  # fmt: skip
    one = talk(runtime)
    take(one, turn(1))
    one.open_turn(question)
    one.take_turn(question, answer, record=read_turn(messages, question))
    assert one.late_switch() == (said if stays else "")
    take(one, turn(3))
    later = [*messages, *transcript(turn(3))]
    for conversation in (one, talk(runtime)):
        conversation.replay.end(later)
    expected = texts(turn(1)) if stays else texts(turn(1), turn(3))
    assert stored(runtime, database) == expected
    take(one, ("on the record", "Welcome back, I keep notes again."), turn(4))
    talk(runtime).replay.end([*later, *transcript(("on the record", "Welcome back, I keep notes again."), turn(4))])
    assert stored(runtime, database) == [*expected, *texts(turn(4))]


@pytest.mark.parametrize(
    ("said", "stays"), [("off the record please", True), ("off the record: my PIN is 1234", False)]
)
@pytest.mark.parametrize("branched", [False, True])
@with_and_without_row_security
def test_a_turn_stays_off_the_record_by_a_correction_that_the_host_has_not_recorded(
    start: Callable[..., Runtime], database: str, said: str, stays: bool, branched: bool
) -> None:
    """One host writes the result of a tool before it appends the correction, and goes on from there after a restart."""
    runtime, switches = start(), [(words, "Of course, as you wish.") for words in ("off the record", "on the record")]
    one = talk(runtime)
    take(one, *switches, turn(1))
    one.open_turn(turn(2)[0])
    one.take_turn(*turn(2), record=read_turn(corrected(turn(2), said, rows=False), turn(2)[0]))
    if branched:
        one.go_on("branch", "s", anew=False, reason="branch")
    take(one, turn(3), switches[1], turn(4))
    recorded = transcript(*switches, *map(turn, (1, 2, 3)), switches[1], turn(4))
    (one if branched else talk(runtime)).replay.end(recorded)
    assert stored(runtime, database) == texts(turn(1), *([] if stays else [turn(3)]), turn(4))


def test_a_late_correction_is_heard_when_the_transcript_has_lost_an_earlier_one(
    start: Callable[..., Runtime], database: str
) -> None:
    """One host appends it to a result that it has recorded before, and reads its record again after a restart."""
    runtime = start()
    for said, number in (("use the metric units", 1), ("off the record please", 2)):
        heard = corrected(turn(0), said, rows=False) if number == 2 else transcript(turn(0))
        messages = heard + (corrected(turn(1), said, rows=False) if number == 1 else transcript(turn(1), turn(2)))
        one = talk(runtime)
        one.open_turn(turn(number)[0])
        one.take_turn(*turn(number), record=read_turn(messages, turn(number)[0]))
    assert one.late_switch() == said
    assert stored(runtime, database) == texts(turn(1))


@pytest.mark.parametrize("opened", [turn(3)[0], ""], ids=["words", "a picture"])
def test_a_turn_stays_off_the_record_that_is_handed_over_after_the_next_message_said_on_the_record(
    start: Callable[..., Runtime], database: str, opened: str
) -> None:
    runtime, switched = start(), ("on the record", "Of course, as you wish.")
    one = talk(runtime)
    take(one, switched)
    one.open_turn(turn(2)[0])
    one.take_turn(*turn(2), record=read_turn(corrected(turn(2), "off the record", rows=False), turn(2)[0]))
    for asked in (opened, switched[0]):  # One host opens a turn that has a picture without its words.
        one.open_turn(asked)
    for pair in (turn(3), switched):
        one.take_turn(*pair)
    talk(runtime).replay.end(transcript(switched, *map(turn, (2, 3)), switched))
    assert stored(runtime, database) == []


@pytest.mark.parametrize("then", ["on the record", turn(4)[0]])
def test_a_turn_stays_off_the_record_that_is_interrupted_when_no_message_tells(
    start: Callable[..., Runtime], database: str, then: str
) -> None:
    runtime, switched = start(), ("on the record", "Of course, as you wish.")
    one = talk(runtime)
    take(one, switched)
    one.open_turn(turn(2)[0])
    one.take_turn(*turn(2), record=read_turn(corrected(turn(2), "off the record", rows=False), turn(2)[0]))
    one.open_turn(turn(3)[0])
    said = [switched, turn(2), turn(3), (then, "Yes, I do that now for you.")]
    one.open_turn(then)
    one.take_turn(*said[-1], record=read_turn(transcript(*said), then))
    if then != switched[0]:
        take(one, switched)
        said.append(switched)
    talk(runtime).replay.end(transcript(*said))
    assert stored(runtime, database) == []


def test_a_branch_stays_off_the_record_when_the_turn_that_took_it_off_is_handed_over_late(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime, switched = start(), ("on the record", "Of course, as you wish.")
    one = talk(runtime)
    take(one, switched)
    one.open_turn(turn(2)[0])
    one.go_on("branch", "s", anew=False, reason="branch")
    read = read_turn(corrected(turn(2), "off the record please", rows=False), turn(2)[0])
    one.take_turn(*turn(2), "s", record=read)
    take(one, turn(3), switched)
    one.replay.end(transcript(switched, *map(turn, (2, 3)), switched))
    assert stored(runtime, database) == []


def test_a_child_agent_that_returns_after_a_turn_was_corrected_to_be_off_the_record_is_not_stored(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime, (question, answer) = start(), turn(2)
    one = talk(runtime)
    one.open_turn(question)
    read = read_turn(corrected(turn(2), "off the record: my PIN is 1234", rows=False), question)
    one.take_turn(question, answer, record=read)
    one.delegate("look up what the PIN 1234 is for", "it opens the safe of the bank", "child")
    with psycopg.connect(database) as connection:
        assert runtime.writer.flush(10)
        assert connection.execute("select * from memory_agent_edges").fetchall() == []


@pytest.mark.parametrize("ended", ["Operation interrupted: waiting for model response (0.7s elapsed).", ""])
def test_what_a_host_says_of_a_child_agent_that_was_stopped_is_not_stored_as_its_result(
    start: Callable[..., Runtime], database: str, ended: str
) -> None:
    runtime = start()
    talk(runtime).delegate("look up when the ferry to Bergen leaves", ended, "child")
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        found = connection.execute("select edges::text from memory_agent_edges edges").fetchall()
    assert len(found) == 1
    assert "interrupted" not in found[0][0]


def corrected(turn: tuple[str, str], *said: str, rows: bool) -> list[dict[str, Any]]:
    """The messages of a turn that a person corrects twice: in rows of their own, or in the result of one tool."""
    marked = [f"{MARK}\n{text}\n[/OUT-OF-BAND USER MESSAGE]" for text in said]
    steers = [{"role": "user", "content": text, "display_kind": "steer"} for text in marked] if rows else []
    result = "42%" if rows else "\n\n".join(["42%", *marked])
    return [
        {"role": "user", "content": turn[0]},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "terminal"}, "id": "1"}]},
        {"role": "tool", "tool_call_id": "1", "content": result}, *steers, {"role": "assistant", "content": turn[1]},
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize(
    ("question", "said"),
    [
        (turn(2)[0], ("off the record: my PIN is 1234", "and hurry please")),
        (turn(2)[0], ("and hurry please", "off the record: my PIN is 1234")),
        ("off the record: my PIN is 1234", ("and hurry please",)),
    ],
)
@with_and_without_row_security
def test_a_turn_off_the_record_stays_so_when_it_is_corrected_once_more(
    start: Callable[..., Runtime], database: str, question: str, said: tuple[str, ...], rows: bool
) -> None:
    runtime, silenced = start(), (question, turn(2)[1])
    messages = [*transcript(turn(1)), *corrected(silenced, *said, rows=rows)]
    one = talk(runtime)
    take(one, turn(1))
    one.open_turn(question)
    one.take_turn(*silenced, record=read_turn(messages, question))
    take(one, turn(3))
    for conversation in (one, talk(runtime)):
        conversation.replay.end([*messages, *transcript(turn(3))])
    assert stored(runtime, database) == texts(turn(1), turn(3))


@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.parametrize("said", ["and hurry please", "on the record"])
def test_a_turn_that_is_corrected_is_stored_with_its_question(
    start: Callable[..., Runtime], database: str, said: str, rows: bool
) -> None:
    runtime, messages = start(), corrected(turn(1), said, rows=rows)
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.take_turn(*turn(1), record=read_turn(messages, turn(1)[0]))
    # The result of a tool may have such words from anybody.
    correction = f"\n\nUser correction during the turn: {said}" if rows and said != "on the record" else ""
    assert stored(runtime, database) == [turn(1)[0] + correction, turn(1)[1]]
    talk(runtime, "missed").replay.end(corrected(turn(2), said, rows=rows))
    assert stored(runtime, database) == [turn(1)[0] + correction, turn(1)[1], *texts(turn(2))]


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("action", "told"),
    [("add", {}), ("replace", {"old_text": "old"}), ("replace", {"previous_content": "an old secret"})],
)
@with_and_without_row_security
def test_what_is_written_off_the_record_while_the_snapshot_is_busy_is_not_stored_later(
    start: Callable[..., Runtime], database: str, ends: bool, action: str, told: dict[str, str]
) -> None:
    runtime = start()
    file = runtime.home.path / "memories" / "MEMORY.md"
    file.write_text("an old secret")
    runtime.files.reconcile("default", "s")
    one = talk(runtime)
    take(one, ("off the record", "As you like, I keep nothing of it."))
    with Home(runtime.home.path).snapshot(1):
        file.write_text("a secret of today" if told else "an old secret\n§\na secret of today")
        one.change_entry(action, "memory", "a secret of today\n", told)
    assert stored(runtime, database, "memory_entries") == ([] if told else ["an old secret"])
    if ends:
        release(runtime)
        runtime = start()
    for _ in range(2):
        runtime.files.reconcile("default", "s")
        assert "a secret of today" not in stored(runtime, database, "memory_entries")
    for content in "", "a secret of today":
        file.write_text(content)
        runtime.files.reconcile("default", "s")
    assert stored(runtime, database, "memory_entries") == ["a secret of today"], "by hand, on another day"


@with_and_without_row_security
def test_a_turn_off_the_record_is_not_named_when_it_is_taken_back(
    start: Callable[..., Runtime], record: Record
) -> None:
    runtime = start(allowed_themes=["elsewhere"])
    one = talk(runtime)
    for pair in (turn(1), ("off the record", "As you like, I keep nothing of it."), turn(2)):
        record.say("s", pair)
    record.undo("s", 3)
    one.replay.take_back()
    told = "".join(path.read_text() for path in runtime.dead_letters.folder.glob("*.json"))
    assert turn(1)[1] in told
    assert turn(2)[1] not in told


def test_a_turn_off_the_record_is_not_named_when_it_is_taken_back_right_before_a_question_is_asked_again(
    start: Callable[..., Runtime], record: Record
) -> None:
    runtime = start(allowed_themes=["elsewhere"])
    one = talk(runtime)
    for pair in (turn(0), turn(1), ("off the record", "As you like, I keep nothing of it."), turn(2), turn(3)):
        record.say("s", pair)
        if pair == turn(1):
            record.undo("s")
    record.undo("s")
    record.rewrite("s")
    one.replay.take_back()
    told = "".join(path.read_text() for path in runtime.dead_letters.folder.glob("*.json"))
    assert [turn(number)[1] in told for number in range(4)] == [False, True, False, False]


@with_and_without_row_security
@pytest.mark.parametrize("how", ["by setting", "before the session was compressed", "before the process began"])
def test_a_turn_off_the_record_whose_transcript_does_not_say_so_is_not_named_when_it_is_taken_back(
    start: Callable[..., Runtime], record: Record, how: str
) -> None:
    runtime = start(off_record=how == "by setting", allowed_themes=["elsewhere"])
    one = talk(runtime, "r")
    if how != "by setting":
        take(one, ("off the record", "As you like, I keep nothing of it."))
    one.go_on("s", "r", anew=how == "by setting", reason="compression")
    if how == "before the process began":
        one = talk(runtime)
    take(one, turn(2))
    record.say("s", turn(2))
    record.undo("s")
    one.replay.take_back()
    assert turn(2)[1] not in "".join(path.read_text() for path in runtime.dead_letters.folder.glob("*.json"))


def test_a_secret_of_a_turn_reaches_neither_the_outbox_nor_the_database_and_a_replay_adds_nothing(
    start: Callable[..., Runtime], record: Record, database: str, tmp_path: Path
) -> None:
    key, password = "sk-proj-" + "a1B2" * 12, "hunter2-and-more"
    told = (f"My key for the gateway is {key}, keep it safe", f"psql postgresql://app:{password}@db/x works now")
    with away(tmp_path) as offline:
        one = talk(offline)
        take(one, told)
        one.delegate(f"Log in with {key}", f"DB_PASSWORD={password}", "child")
        one.replay.end(transcript(told))
        spool = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert b"My key for the gateway" in spool
        assert key.encode() not in spool
        assert password.encode() not in spool
    runtime = start()
    one = talk(runtime)
    one.replay.end(transcript(told))
    kept = [
        "My key for the gateway is [masked: API key], keep it safe",
        "psql postgresql://app:[masked: password]@db/x works now",
    ]
    wait_for(lambda: len(stored(runtime, database)) >= 3)
    assert set(kept) < set(stored(runtime, database))
    assert len(stored(runtime, database)) == len(set(stored(runtime, database)))
    assert not any(key in text or password in text for text in stored(runtime, database))
    record.say("s", told)
    record.undo("s")
    one.replay.take_back()
    assert not set(kept) & set(stored(runtime, database))


def test_secrets_stay_in_turns_where_the_setting_says_so(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(mask_secrets=False)
    told = ("My password for the database is password=hunter2-and-more", "I have noted it for this session.")
    take(talk(runtime), told)
    assert stored(runtime, database) == texts(told)


def test_a_turn_that_was_stored_with_its_secret_is_replayed_and_withdrawn_with_a_mask(
    start: Callable[..., Runtime], record: Record, database: str
) -> None:
    told = ("What did I set for the database there?", "You set password=hunter2-and-more for the billing database.")
    other = ("And which one was it before that one?", "You set password=another-1-before for the billing database.")
    runtime = start(mask_secrets=False)
    take(talk(runtime), told)
    assert stored(runtime, database) == texts(told)
    runtime = start()
    one = talk(runtime)
    one.replay.end(transcript(told, other))
    wait_for(lambda: len(stored(runtime, database)) >= 4)
    masked = other[1].replace("another-1-before", "[masked: password]")
    assert sorted(stored(runtime, database)) == sorted((*told, other[0], masked))
    record.say("s", told)
    record.undo("s")
    one.replay.take_back()
    wait_for(lambda: told[1] not in stored(runtime, database))


@with_and_without_row_security
def test_a_session_stays_off_the_record_however_many_others_follow(start: Callable[..., Runtime]) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, ("off the record", "As you like, I keep nothing of it."))
    runtime.context.off_record.change((mark_name(f"{number}:default") for number in range(1_500)), marked=True)
    assert talk(runtime).caller("default").off_record
    assert not talk(runtime, "another").caller("default").off_record


@with_and_without_row_security
def test_what_is_written_while_a_session_off_the_record_is_continued_is_not_stored(
    start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = start()
    one, marked, change = talk(runtime), list[bool](), runtime.context.off_record.change
    take(one, ("off the record", "As you like, I keep nothing of it."))

    def then_ask(*names: Any, **marked_: bool) -> None:
        marked.append(one.caller("default").off_record)
        change(*names, **marked_)

    monkeypatch.setattr(runtime.context.off_record, "change", then_ask)
    one.go_on("s2", "s", anew=False, reason="compression")
    assert [*marked, one.caller("default").off_record] == [True, True]


@with_and_without_row_security
def test_a_turn_that_comes_late_was_still_off_the_record(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn("off the record")
    one.open_turn(turn(1)[0])
    one.open_turn("on the record")
    one.take_turn("off the record", "Then nothing of this is kept anywhere, as you wish.")
    one.take_turn(*turn(1))
    one.take_turn("on the record", "From now on I keep notes again, as before.")
    take(one, turn(1))
    assert stored(runtime, database) == texts(turn(1))


def test_a_turn_that_comes_late_was_still_on_the_record(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.open_turn("off the record")
    one.take_turn(*turn(1))
    one.take_turn("off the record", "Then nothing of this is kept anywhere, as you wish.")
    assert stored(runtime, database) == texts(turn(1))


@with_and_without_row_security
@pytest.mark.parametrize("interrupted_before", [False, True])
def test_a_question_that_was_interrupted_off_the_record_is_stored_once_when_it_is_asked_on_it(
    interrupted_before: bool, start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one, (question, answer) = talk(runtime), turn(1)
    off, on = (
        ("off the record", "Then nothing of this is kept anywhere, as you wish."),
        ("on the record", "From now on I keep notes again, as before."),
    )
    before = [(question, "")] if interrupted_before else []
    for asked, _ in before:
        one.open_turn(asked)
    take(one, off)
    # Interrupted, or answered with nothing: it is not handed over.
    one.open_turn(question)
    take(one, on, (question, answer))
    said = [*before, off, (question, "its disk, I thi"), on, (question, answer)]
    one.replay.end(transcript(*said))
    one.replay.end(transcript(*said))
    # It was only late: of what is handed over first, nobody could tell which of the two it was.
    one.take_turn(question, "its disk, I thi")
    assert stored(runtime, database) == texts(turn(1))


@with_and_without_row_security
def test_a_picture_off_the_record_that_comes_late_is_not_stored(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, ("off the record", "Then nothing of this is kept anywhere, as you wish."))
    # One host opens a turn that has a picture without its words.
    one.open_turn("")
    one.open_turn("on the record")
    one.take_turn(f"[1 image] {turn(1)[0]}", turn(1)[1])
    one.take_turn("on the record", "From now on I keep notes again, as before.")
    one.open_turn("")
    one.take_turn(f"[1 image] {turn(2)[0]}", turn(2)[1])
    assert stored(runtime, database) == [f"[1 image] {turn(2)[0]}", turn(2)[1]]


MESSAGES = st.lists(st.sampled_from(["off the record", "on the record", turn(1)[0], turn(2)[0]]), max_size=10)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(MESSAGES, st.randoms(use_true_random=False))
def test_in_any_order_of_hooks_what_is_on_the_record_is_stored_once_and_nothing_else(
    start: Callable[..., Runtime], database: str, messages: list[str], chance: random.Random
) -> None:
    runtime, session, off = start(), uuid4().hex, False
    one = talk(runtime, session)
    told, waiting, kept, doubtful = list[tuple[str, str]](), list[tuple[str, str]](), list[str](), set[str]()
    for number, message in enumerate([*messages, "on the record"]):
        off = message == "off the record" or (off and message != "on the record")
        said = (message, f"answer {number}: the disk is full, as the answer before has said already")
        one.open_turn(message)
        # Whether these answer the question that was asked before, or the same one off the record, only the transcript
        # can tell: they are stored if it does.
        doubtful |= {answer for asked, answer in waiting if off and asked == message}
        interrupted = chance.random() < 0.3
        # Of what is interrupted on the record, nothing is kept; what it said is not the matter here.
        told.append((message, "" if interrupted and not off else said[1]))
        if not interrupted:
            waiting.append(said)
            kept += [said[1]] if message.startswith("question") and not off else []
        chance.shuffle(waiting)
        while waiting and chance.random() < 0.5:
            one.take_turn(*waiting.pop())
    for late in waiting:
        one.take_turn(*late)
    one.replay.end(transcript(*told))
    assert runtime.writer.flush(10)
    statement = "select content from conversations where session_id = %s and role = 'assistant'"
    with psycopg.connect(database) as connection:
        found = [row[0] for row in connection.execute(statement, (session,))]
    doubtful -= {answer for _, answer in on_record(told)}
    assert sorted(found) == sorted(answer for answer in kept if answer not in doubtful)


def test_a_new_session_begins_on_the_record_and_other_themes_of_the_same_session_are_on_it(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    garden, kitchen = (
        talk(runtime, "api-1", gateway_session_key=key, platform="api_server") for key in ("garden", "kitchen")
    )
    take(garden, ("off the record", "Certainly, nothing of this is kept from now on."), turn(1))
    take(kitchen, turn(2))
    garden.go_on("api-2", "api-1", anew=True, reason="new_session")
    take(garden, turn(3))
    assert stored(runtime, database) == texts(turn(2), turn(3))


def test_clients_whose_keys_are_hashed_switch_no_session_of_each_other(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(hash_personal_keys=True)
    one, two = (
        talk(runtime, gateway_session_key=f"{name}@example.org", platform="api_server") for name in ("ann", "bob")
    )
    take(one, ("off the record", "Certainly, nothing of this is kept from now on."), turn(1))
    take(two, turn(2), ("on the record", "Welcome back, I keep notes again."))
    take(one, turn(3))
    assert stored(runtime, database) == texts(turn(2))


def test_a_client_without_a_key_switches_no_session_of_a_person(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    person = talk(runtime, gateway_session_key="agent:main:telegram:dm:42", platform="telegram", chat_type="dm")
    client = talk(runtime, platform="api_server")
    take(client, ("off the record", "Certainly, nothing of this is kept from now on."), turn(1))
    take(person, turn(2))
    assert stored(runtime, database) == texts(turn(2))
    take(person, ("off the record", "Certainly, nothing of this is kept from now on."))
    take(client, ("on the record", "Welcome back, I keep notes again."), turn(3))
    take(person, turn(4))
    assert stored(runtime, database) == texts(turn(2), turn(3))


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("billing", {}, {"theme_aliases": {"billing": "finance"}}),
        ("ann@example.org", {}, {"hash_personal_keys": True}),
        ("", {"theme_template": "{project}"}, {}),
        ("", {"theme_template": "{project}"}, {"theme_template": "{profile}-{project}"}),
    ],
    ids=["alias", "hashed", "profile", "template"],
)
def test_a_session_stays_off_the_record_when_settings_give_its_theme_another_name(
    start: Callable[..., Runtime], database: str, key: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    known = {"gateway_session_key": key, "platform": "api_server"} if key else {"platform": "cli"}
    first = start(**before)
    one = talk(first, **known)
    take(one, ("off the record", "Certainly, nothing of this is kept from now on."), turn(1))
    name = one.session.allowed_theme()
    release(first)
    second = start(**after)
    again = talk(second, **known)
    assert again.session.allowed_theme() != name
    take(again, turn(2))
    assert stored(second, database) == []
    take(again, ("on the record", "Welcome back, I keep notes again."), turn(3))
    assert stored(second, database) == texts(turn(3))


def test_a_recall_in_a_session_finds_the_sessions_that_it_continues(
    start: Callable[..., Runtime], database: str, record: Record
) -> None:
    runtime = start()
    one = talk(runtime, "first")
    take(one, turn(1))
    one.go_on("compressed", "first", anew=False, reason="compression")
    take(one, turn(2))
    one.go_on("branch", "compressed", anew=False, reason="branch")
    take(one, turn(3))
    take(talk(runtime, "beside"), turn(4))
    assert len(stored(runtime, database)) == 8

    def found(conversation: Conversation) -> set[str]:
        asked = {"query": "slow host today", "scope": "session"}
        answer = toolset.call(runtime, "recall_conversation", asked, conversation.caller("default"))
        return {hit["session_id"] for hit in json.loads(answer)["hits"]}

    assert found(one) == {"first", "compressed", "branch"}
    # Another object, or a process that goes on with the session, knows it from the record.
    assert found(talk(runtime, "branch")) == {"branch"}
    record.begin("first", "")
    record.begin("compressed", "first", end_reason="compression")
    record.begin("branch", "compressed", model_config='{"_branched_from": "compressed"}')
    assert found(talk(runtime, "branch")) == {"first", "compressed", "branch"}
    record.begin("child", "first", end_reason="compression", model_config='{"_delegate_from": "first"}')
    take(talk(runtime, "child"), turn(6))
    assert found(talk(runtime, "child")) == {"child"}
    one.go_on("new", "branch", anew=True, reason="new_session")
    # One host records what it began after as its parent.
    record.begin("new", "branch", end_reason="session_reset", model_config='{"_reset_from": "branch"}')
    take(one, turn(5))
    assert found(one) == {"new"}


@with_and_without_row_security
def test_a_process_that_is_off_the_record_only_reads(start: Callable[..., Runtime], database: str) -> None:
    runtime = start(off_record=True)
    (runtime.home.path / "memories" / "MEMORY.md").write_text("written by hand")
    one = talk(runtime)
    take(one, turn(1), ("on the record", "This process keeps nothing, whatever is said."), turn(2))
    one.change_entry("add", "memory", "written by the agent", {})
    runtime.reconcile(Identity(), "s")
    assert stored(runtime, database) == stored(runtime, database, "memory_entries") == []
    assert notice("on the record", always_off=True) == STAYS_OFF


@with_and_without_row_security
def test_turns_of_a_process_off_the_record_are_not_stored_by_the_next_process_of_the_session(
    start: Callable[..., Runtime], database: str
) -> None:
    quiet = start(off_record=True)
    take(talk(quiet), turn(1))
    release(quiet)
    runtime = start()
    one = talk(runtime)
    take(one, turn(2))
    one.replay.end(transcript(turn(1), turn(2)))
    take(one, ("on the record", "Welcome back, I keep notes again."), turn(3))
    one.replay.end(transcript(turn(1), turn(2), ("on the record", "Welcome back, I keep notes again."), turn(3)))
    assert stored(runtime, database) == texts(turn(3))


@with_and_without_row_security
def test_a_child_that_was_sent_off_the_record_and_comes_back_on_it_is_not_stored(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, ("off the record", "As you like, I keep nothing of it."), turn(1), ("on the record", "Welcome back."))
    one.delegate("look into the secret of today, please", "it is a secret of today, indeed", "child")
    assert stored(runtime, database) == []


@pytest.mark.parametrize("reason", ["new_session", "resume"])
@pytest.mark.parametrize("at_the_end", [(1, 2), (1,), (2,)])
def test_a_session_in_which_nothing_is_said_stores_nothing_of_the_one_before(
    start: Callable[..., Runtime], database: str, reason: str, at_the_end: tuple[int, ...]
) -> None:
    """Hosts end it with the transcript of a session before, which /undo, /retry and /compress do not shorten."""
    runtime = start()
    one = talk(runtime)
    take(one, turn(1))
    one.replay.end(transcript(*map(turn, at_the_end)))
    before = sorted(stored(runtime, database))
    for session in ("s2", "s3"):
        one.go_on(session, one.session.id, anew=reason == "new_session", reason=reason)
        one.replay.end(transcript(turn(1), turn(2)))
    assert sorted(stored(runtime, database)) == before
    # Said again, it is stored again.
    one.open_turn(turn(2)[0])
    one.replay.end(transcript(turn(2)))
    assert len(stored(runtime, database)) == len(before) + 2


def test_a_session_whose_first_turn_was_opened_before_it_is_begun_has_a_transcript_when_that_is_handed_over(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    one.open_turn(turn(1)[0])
    one.go_on("s2", "s", anew=True)
    one.take_turn(*turn(1), "s2")
    one.replay.end(transcript(turn(1), turn(2)))
    assert sorted(stored(runtime, database)) == sorted([*texts(turn(1)), *texts(turn(2))])


@pytest.mark.parametrize("reason", ["branch", "compression"])
def test_what_was_taken_back_is_not_stored_by_the_session_that_goes_on(
    start: Callable[..., Runtime], database: str, record: Record, reason: str
) -> None:
    """Hosts end it with the transcript from before the turn was taken back, when nothing was said since."""
    runtime = start()
    one = talk(runtime)
    for said in (turn(1), turn(2)):
        record.say("s", said)
        take(one, said)
    record.undo("s")
    one.replay.take_back()
    one.go_on("s2", "s", anew=False, reason=reason)
    one.replay.end(transcript(turn(1), turn(2)))
    assert stored(runtime, database) == texts(turn(1))


@with_and_without_row_security
def test_a_session_that_is_begun_behind_its_first_turn_is_off_the_record_by_it(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, turn(1))
    one.open_turn("off the record")
    one.go_on("s2", "s", anew=True, reason="new_session")
    one.take_turn("off the record", "As you like, I keep nothing of it.")
    take(one, turn(2))
    one.go_on("s3", "s2", anew=True, reason="new_session")
    take(one, turn(3))
    assert stored(runtime, database) == texts(turn(1), turn(3))


def test_the_name_of_the_speaker_before_a_switch_is_ignored(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    take(talk(runtime), ("[Ann B.] off the record", "As you like, I keep nothing of it."), turn(1))
    assert stored(runtime, database) == []


def test_several_entries_in_one_content_are_stored_as_the_host_reads_them(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    file = runtime.home.path / "memories" / "MEMORY.md"
    file.write_text("kelp grows\n§\neels swim")
    one.change_entry("add", "memory", "kelp grows\n§\neels swim", {})
    assert stored(runtime, database, "memory_entries") == ["kelp grows", "eels swim"]
    file.write_text("crabs walk\n§\nclams sit\n§\neels swim")
    one.change_entry("replace", "memory", "crabs walk\n§\nclams sit", {"old_text": "kelp"})
    runtime.files.reconcile("default", "s")
    assert sorted(stored(runtime, database, "memory_entries")) == ["clams sit", "crabs walk", "eels swim"]


@with_and_without_row_security
@pytest.mark.parametrize("lost", [False, True])
def test_several_entries_that_were_written_off_the_record_stay_unknown_also_without_the_snapshot(
    start: Callable[..., Runtime], database: str, lost: bool
) -> None:
    runtime = start()
    one = talk(runtime)
    take(one, ("off the record", "As you like, I keep nothing of it."))
    (runtime.home.path / "memories" / "MEMORY.md").write_text("a secret of today\n§\nanother secret")
    one.change_entry("add", "memory", "a secret of today\n§\nanother secret", {})
    if lost:
        (runtime.home.path / "pgvector" / "snapshot.jsonl").unlink()
    runtime.files.reconcile("default", "s")
    assert stored(runtime, database, "memory_entries") == []


def test_an_entry_that_is_said_again_on_the_record_is_stored(start: Callable[..., Runtime], database: str) -> None:
    runtime = start()
    one = talk(runtime)
    file = runtime.home.path / "memories" / "MEMORY.md"
    take(one, ("off the record", "As you like, I keep nothing of it."))
    file.write_text("no secret any more")
    one.change_entry("add", "memory", "no secret any more", {})
    take(one, ("on the record", "Welcome back, I keep notes again."))
    file.write_text("")
    one.change_entry("remove", "memory", "", {"old_text": "no secret"})
    file.write_text("no secret any more")
    one.change_entry("add", "memory", "no secret any more", {})
    runtime.files.reconcile("default", "s")
    assert stored(runtime, database, "memory_entries") == ["no secret any more"]


def test_a_turn_with_the_answer_of_the_one_before_is_stored_after_the_same_question_was_interrupted(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime)
    (asked, answer), (again, _) = turn(1), turn(2)
    take(one, (asked, answer))
    one.open_turn(again)
    one.open_turn(again)
    one.replay.end(transcript((asked, answer), (again, "Operation interrupted.")))
    one.take_turn(again, answer)
    assert stored(runtime, database) == texts((asked, answer), (again, answer))


def test_a_job_keeps_its_turns_when_the_setting_names_it(start: Callable[..., Runtime], database: str) -> None:
    quiet = start()
    take(talk(quiet, context="cron"), turn(1))
    assert stored(quiet, database) == []
    told = start(write_contexts=["primary", "cron"])
    take(talk(told, context="cron"), turn(1))
    take(talk(told, context="subagent"), turn(2))
    assert stored(told, database) == texts(turn(1))


def test_entries_of_a_job_are_marked_and_its_delegations_are_not_stored(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(tools="all")
    job, person = talk(runtime, "c", context="cron"), talk(runtime, "p")
    for conversation, fact in ((job, "the nightly run takes 40 minutes"), (person, "the bridge is made of wood")):
        answer = toolset.call(runtime, "remember", {"content": fact, "sync": True}, conversation.caller("default"))
        assert json.loads(answer)["status"] == "stored"
        conversation.delegate(f"look into this for me: {fact}", f"yes, {fact}", "child")
    assert stored(runtime, database) == [
        "look into this for me: the bridge is made of wood", "yes, the bridge is made of wood"
    ]  # fmt: skip
    with psycopg.connect(database) as connection:
        found = connection.execute("select metadata ->> 'context' from memory_entries order by id").fetchall()
    assert found == [("cron",), (None,)]


def test_a_turn_in_a_room_that_comes_late_has_the_pseudonym_of_its_own_author(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    one = talk(runtime, "room", platform="telegram", gateway_session_key="agent:main:telegram:group:-100")
    one.open_turn(turn(1)[0], "4917055512")
    one.open_turn(turn(2)[0], "4917099887766")
    one.take_turn(*turn(1))
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        found = connection.execute("select distinct metadata ->> 'author' from conversations").fetchall()
    assert found == [(runtime.context.author("telegram", "4917055512"),)]


def test_a_turn_in_a_room_has_the_pseudonym_of_its_author_and_a_private_turn_has_none(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start()
    key = "agent:main:telegram:group:-100777:4917055512"
    room = {"gateway_session_key": key, "platform": "telegram", "user_id": "4917055512"}
    take(talk(runtime, "room", **room), turn(1))
    take(talk(runtime, "room", **room), turn(2), author="4917099887766")
    private = {**room, "gateway_session_key": "agent:main:telegram:dm:4917055512"}
    take(talk(runtime, "dm", **private), turn(3))
    assert runtime.writer.flush(10)
    with psycopg.connect(database) as connection:
        found = connection.execute("select content, metadata ->> 'author' from conversations").fetchall()
        dump = str(connection.execute("select to_jsonb(c) - 'content' - 'embedding' from conversations c").fetchall())
    authors: dict[str, str] = dict(found)
    assert authors[turn(1)[0]] == authors[turn(1)[1]] == runtime.context.author("telegram", "4917055512")
    assert authors[turn(2)[0]] == runtime.context.author("telegram", "4917099887766") != authors[turn(1)[0]]
    assert authors[turn(3)[0]] is None
    assert "4917055512" not in dump
    assert "4917099887766" not in dump


def test_a_compression_gets_the_entries_that_matter_to_it_and_no_others(
    start: Callable[..., Runtime], database: str
) -> None:
    runtime = start(min_similarity=0.3)
    known = {"theme": "default", "home": runtime.home.id, "target": "memory"}
    for content in ("the staging database is db-prod-03", "likes green tea"):
        assert runtime.accept(Add(content=content, **known))
    assert runtime.accept(Add(content="the staging database of the others", **{**known, "theme": "other"}))
    assert runtime.writer.flush(10)
    told = runtime.prefetch.before_compression(
        "default", transcript(("which one is the staging database db-prod-03?", "I look it up."))
    )
    assert "the staging database is db-prod-03" in told
    assert "green tea" not in told
    assert "of the others" not in told
    assert (
        runtime.prefetch.before_compression("default", transcript(("wie wird das Wetter in Bern?", "Es regnet."))) == ""
    )
    assert runtime.prefetch.before_compression("default", []) == ""
    for silent in ({"recall_mode": "tools"}, {"prefetch_limit": 0}):
        quiet = start(min_similarity=0.3, **silent)
        assert (
            quiet.prefetch.before_compression(
                "default", transcript(("which one is the staging database db-prod-03?", "Wait."))
            )
            == ""
        )
