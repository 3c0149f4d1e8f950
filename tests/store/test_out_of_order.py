"""Processes of a home store what they have at different times: the turns that remain are those that stand."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_memory_pgvector.model import Event, SessionEnded, TurnTaken, Withdrawn
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare

pytestmark = pytest.mark.on_citus

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
_numbers = count(1)


class Memory:
    """The turns of one session, `s` unless said otherwise; events are stored in the order in which they are given."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.database = dsn, Database(Settings(dsn=dsn), folder)  # type: ignore[arg-type]
        self.theme = "ops"

    def store(self, *events: Event, at_once: bool = False) -> None:
        prepared = list(map(prepare, events))
        for batch in [prepared] if at_once else [[one] for one in prepared]:
            with self.database.transaction(10, 20) as connection:
                rows.apply(connection, batch)

    def sql(self, statement: str, *values: Any) -> list[Any]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def turns(self) -> list[tuple[str, str]]:
        """The session and the text of each row, in the order in which they were said."""
        return self.sql(
            "select session_id, content from conversations where agent_identity = %s order by ts", self.theme
        )

    def answers(self) -> list[str]:
        return [row[0] for row in self.sql(
            "select content from conversations where agent_identity = %s and role = 'assistant' order by ts", self.theme
        )]  # fmt: skip

    # What hooks accept, `at` seconds after the start.

    def turn(self, at: float, answer: str, user: str = "", **more: Any) -> TurnTaken:
        return TurnTaken(user=user or f"question at {at:g}", assistant=answer, **self._common(at, more))

    def replay(self, at: float, *answers: str, **more: Any) -> SessionEnded:
        return SessionEnded(turns=tuple(("as the host tells it", a) for a in answers), **self._common(at, more))

    def undo(self, at: float, *answers: str, standing: Sequence[int] = (), **more: Any) -> Withdrawn:
        left = tuple(standing) or (0,) * len(answers)
        return Withdrawn(turns=tuple(("", answer) for answer in answers), standing=left, **self._common(at, more))

    def _common(self, at: float, more: dict[str, Any]) -> dict[str, Any]:
        return {"theme": self.theme, "home": "h", "session_id": "s", "at": START + timedelta(seconds=at), **more}


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(database, tmp_path)
    with closing(memory.database):
        yield memory


def test_a_turn_takes_the_place_of_what_a_later_replay_told_of_it(memory: Memory) -> None:
    said = memory.turn(1, "its disk is full", metadata={"author": "a1"})
    memory.store(memory.replay(9, "its disk is full", "and its fan is loud"), said, said)
    assert memory.answers() == ["its disk is full", "and its fan is loud"]
    # The turn as it was said, and when.
    assert memory.turns()[:2] == [("s", "question at 1"), ("s", "its disk is full")]
    assert memory.sql("select ts, metadata from conversations order by ts limit 1") == [(said.at, {"author": "a1"})]
    memory.store(memory.replay(20, "its disk is full", "and its fan is loud"))
    assert len(memory.turns()) == 4


def test_each_turn_takes_one_place_and_what_was_said_after_the_replay_none(memory: Memory) -> None:
    answer = "done as you wish"
    late = [memory.turn(at, answer) for at in (1, 2, 3)]
    memory.store(memory.replay(9, answer, answer), memory.turn(12, answer))
    assert memory.answers() == [answer] * 3
    # A transcript that was compressed may tell of fewer than were said: none of those is lost.
    memory.store(*late, at_once=True)
    assert memory.answers() == [answer] * 4
    assert [text for _, text in memory.turns()[::2]] == [f"question at {at}" for at in (1, 2, 3, 12)]


def test_of_replayed_turns_with_the_same_answer_a_turn_takes_the_place_of_its_own(memory: Memory) -> None:
    answer = "done as you wish"
    told = replace(memory.replay(9), turns=(("the first", answer), ("the second", answer)))
    memory.store(told, memory.turn(2, answer, user="the second"))
    assert sorted(text for _, text in memory.turns()) == [answer, answer, "the first", "the second"]


def test_a_turn_of_the_session_before_takes_its_place_in_the_one_that_went_on(memory: Memory) -> None:
    memory.store(memory.replay(9, "from before", "from now", session_id="s2", ancestors=("s0", "s")))
    memory.store(memory.turn(1, "from before"), memory.turn(8, "from now", session_id="s2"))
    assert [turn[0] for turn in memory.turns()] == ["s", "s", "s2", "s2"]
    # Of a session that has nothing to do with it, or another theme, nothing is taken.
    memory.store(memory.replay(20, "elsewhere", session_id="s3"))
    memory.store(memory.turn(15, "elsewhere"), memory.turn(16, "elsewhere", session_id="s3", theme="garden"))
    assert memory.answers()[-2:] == ["elsewhere", "elsewhere"]


def test_a_turn_that_was_taken_back_before_it_came_does_not_come_back(memory: Memory) -> None:
    memory.store(memory.turn(1, "stays"), memory.undo(5, "goes"))
    memory.store(memory.turn(2, "goes"), memory.turn(3, "stays, too"), at_once=True)
    assert memory.answers() == ["stays", "stays, too"]
    assert len(memory.turns()) == 4
    # Nor by the replay of a process that ended before; said once more, it stays.
    memory.store(memory.replay(4, "stays", "goes", "stays, too"))
    assert memory.answers() == ["stays", "stays, too"]
    memory.store(memory.turn(6, "goes"), memory.turn(2.5, "goes", session_id="t"), memory.turn(2.5, "goes", theme="x"))
    assert memory.answers() == ["stays", "goes", "stays, too", "goes"]


def test_of_those_that_said_the_same_the_last_is_the_one_that_was_taken_back(memory: Memory) -> None:
    memory.store(memory.turn(2, "the same", user="the second"), memory.undo(5, "the same", standing=(1,)))
    assert memory.answers() == ["the same"]
    memory.store(memory.turn(1, "the same", user="the first"))
    assert [text for _, text in memory.turns()] == ["the first", "the same"]


def test_a_question_without_an_answer_that_was_taken_back_does_not_come_back(memory: Memory) -> None:
    gone = Withdrawn(turns=(("never mind", ""),), standing=(0,), **memory._common(5, {}))
    memory.store(gone, memory.turn(1, "", user="never mind"), memory.turn(2, "an answer", user="never mind"))
    assert [text for _, text in memory.turns()] == ["never mind", "an answer"]


def test_what_a_compressed_session_took_back_stays_away_in_the_one_before_it(memory: Memory) -> None:
    memory.store(memory.undo(5, "goes", session_id="s2", continued=("s",)), memory.turn(1, "goes"))
    assert memory.turns() == []


def test_a_session_that_is_named_twice_is_withdrawn_from_once(memory: Memory) -> None:
    memory.store(memory.turn(1, "goes"), memory.undo(5, "goes", session_id="s2", continued=("s", "s2", "s")))
    assert memory.turns() == []


def test_a_withdrawal_that_comes_after_a_newer_one_takes_nothing_that_stands(memory: Memory) -> None:
    first, second, third = (memory.turn(at, "the same") for at in (1, 30, 40))
    memory.store(second, third, memory.undo(50, "the same", standing=(1,)), first, memory.undo(20, "the same"))
    assert memory.answers() == ["the same"]


def test_what_was_taken_back_is_kept_in_mind_without_its_words(memory: Memory) -> None:
    memory.store(memory.turn(1, "a secret that slipped out"), memory.undo(5, "a secret that slipped out"))
    (row,) = memory.sql("select t::text from memory_withdrawals t")
    assert "secret" not in row[0]
    assert memory.turns() == []


def test_turns_of_several_processes_do_not_wait_for_each_other_but_for_a_replay(memory: Memory) -> None:
    turn, other = memory.turn(1, "one"), memory.turn(2, "two")
    replay = memory.replay(9, "one", "two")
    stored: list[str] = []

    def elsewhere(event: Event) -> None:
        memory.store(event)
        stored.append(type(event).__name__)

    with memory.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepare(turn)])
        memory.store(other)
        waiting = threading.Thread(target=elsewhere, args=(replay,))
        waiting.start()
        time.sleep(0.3)
        assert stored == []
    waiting.join(10)
    assert stored == ["SessionEnded"]
    assert memory.answers() == ["one", "two"]


# A session with few different answers: ("say", answer), ("undo", turns), ("replay", None)
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.sampled_from("AB")),
        st.tuples(st.just("undo"), st.integers(1, 2)),
        st.tuples(st.just("replay"), st.none()),
    ),
    min_size=2, max_size=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ACTS, st.randoms(use_true_random=False))
def test_the_turns_that_stand_are_stored_once_in_whatever_order_they_come(
    memory: Memory, acts: list[tuple[str, Any]], chance: random.Random
) -> None:
    memory.theme = f"theme-{next(_numbers)}"
    standing: list[str] = []
    events: list[Event] = []
    # Far enough apart for the turns of a replay, which lie some milliseconds before it.
    for second, (act, what) in enumerate(acts):
        at = second * 10.0
        if act == "say":
            standing.append(what)
            events.append(memory.turn(at, what))
        elif act == "undo" and standing:
            gone = dict.fromkeys(standing[-what:])
            del standing[-what:]
            left = Counter(standing)
            events.append(memory.undo(at, *gone, standing=[left[answer] for answer in gone]))
        elif act == "replay" and standing:
            events.append(memory.replay(at, *standing))
    chance.shuffle(events)
    memory.store(*events, at_once=chance.random() < 0.3)
    assert Counter(memory.answers()) == Counter(standing)
    assert len(memory.turns()) == 2 * len(standing)
