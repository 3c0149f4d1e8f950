from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import vector

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.rows import missing_turns

pytestmark = [pytest.mark.each_version, pytest.mark.on_citus]

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Memory:
    """A database and what tests ask of it. Events happen a second after each other unless they say when."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.database = Database(Settings(dsn=dsn), folder)  # type: ignore[arg-type]
        self.seconds = 0

    def apply(self, *events: Event, embedded: bool = False) -> int:
        """Apply events in one transaction, as the writer does; returns how many were new."""
        prepared = list(map(prepare, events))
        for passage in (passage for event in prepared for passage in event.passages):
            passage.vector = vector(passage.context + passage.content) if embedded else None
        with self.database.transaction(10, 20) as connection:
            return rows.apply(connection, prepared)

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters or None).fetchall()

    def entries(self) -> list[tuple[str, str, str]]:
        """(theme, target, content) of every entry, oldest row first."""
        return self.rows("select agent_identity, target, content from memory_entries order by id")

    def contents(self, theme: str = "ops") -> list[str]:
        return [content for found, _, content in self.entries() if found == theme]

    def turns(self, theme: str = "ops", session: str = "s") -> list[tuple[str, str]]:
        return self.rows(
            "select role, content from conversations where agent_identity = %s and session_id = %s order by ts, id",
            theme, session,
        )  # fmt: skip


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(database, tmp_path)
    yield memory
    memory.database.close()


def turn(number: int, theme: str = "ops", session: str = "s", **more: Any) -> TurnTaken:
    return TurnTaken(
        theme=theme, session_id=session, at=at(number), user=f"question {number}", assistant=f"answer {number}", **more
    )


def sides(*numbers: int) -> list[tuple[str, str]]:
    return [(r, f"{word} {n}") for n in numbers for r, word in (("user", "question"), ("assistant", "answer"))]


def add(content: str, seconds: float = 0, *, theme: str = "ops", home: str = "A", **more: Any) -> Add:
    return Add(theme=theme, home=home, at=at(seconds), target=more.pop("target", "memory"), content=content, **more)


def remove(seconds: float = 10, *, theme: str = "ops", home: str = "A", **more: Any) -> Remove:
    return Remove(theme=theme, home=home, at=at(seconds), target=more.pop("target", "memory"), **more)


def swap(content: str, seconds: float = 10, *, theme: str = "ops", home: str = "A", **more: Any) -> Replace:
    return Replace(theme=theme, home=home, at=at(seconds), target=more.pop("target", "memory"), content=content, **more)


# --- turns


def test_turns_are_stored_in_order_with_all_that_was_known(memory: Memory) -> None:
    first = turn(1, parent_session_id="p", metadata={"platform": "cli", "emoji": "😀"})
    assert memory.apply(first, turn(2), turn(3), embedded=True) == 3
    assert memory.turns() == sides(1, 2, 3)
    assert [row[0] for row in memory.rows("select content from conversations order by id")] == [
        content for _, content in sides(1, 2, 3)
    ]
    (row,) = memory.rows(
        "select parent_session_id, metadata, ts, embedding is null, search @@ 'question' from conversations "
        "where content = 'question 1'"
    )
    assert row == ("p", {"platform": "cli", "emoji": "😀"}, at(1), False, True)


def test_a_side_that_is_empty_is_not_stored(memory: Memory) -> None:
    assert memory.apply(replace(turn(1), user=""), replace(turn(2), assistant="")) == 2
    assert memory.turns() == [("assistant", "answer 1"), ("user", "question 2")]


def test_a_turn_is_stored_once_however_often_its_event_comes(memory: Memory) -> None:
    first, second = turn(1), turn(2)
    assert memory.apply(first) == 1
    assert memory.apply(first) == 0
    assert memory.apply(first, second, first) == 1
    assert memory.apply(second, first) == 0
    assert memory.turns() == sides(1, 2)


def test_an_event_that_stands_twice_in_a_batch_is_stored_once(memory: Memory) -> None:
    first, second = turn(1), turn(2)
    assert memory.apply(first, second, first, first) == 2
    assert memory.turns() == sides(1, 2)


def test_the_same_words_said_twice_are_two_turns(memory: Memory) -> None:
    assert memory.apply(turn(1), turn(1)) == 2
    assert memory.turns() == sides(1) * 2 or sorted(memory.turns()) == sorted(sides(1, 1))


def test_a_transaction_that_fails_leaves_nothing_and_can_be_repeated(memory: Memory) -> None:
    batch = [turn(1), add("kept")]

    def fail() -> None:
        with memory.database.transaction(10, 20) as connection:
            rows.apply(connection, list(map(prepare, batch)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (memory.turns(), memory.entries()) == ([], [])
    assert memory.apply(*batch) == 2
    assert (memory.turns(), memory.contents()) == (sides(1), ["kept"])


def test_two_processes_that_replay_the_same_events_store_them_once(memory: Memory, tmp_path: Path) -> None:
    batch = [event for number in range(40) for event in (turn(number), add(f"entry {number}", number))]
    fresh: list[int] = []

    def run() -> None:
        other = Memory(memory.dsn, tmp_path)
        fresh.extend(other.apply(*batch[start : start + 8]) for start in range(0, len(batch), 8))
        other.database.close()

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(fresh) == 80
    assert memory.turns() == sides(*range(40))
    assert sorted(memory.contents()) == sorted(f"entry {number}" for number in range(40))


def test_two_themes_may_use_the_same_session_id(memory: Memory) -> None:
    memory.apply(turn(1, theme="ops"), turn(2, theme="billing"), turn(3, theme="ops"))
    ended = SessionEnded(theme="billing", session_id="s", at=at(60), turns=(("question 1", "answer 1"),))
    assert memory.apply(ended) == 1
    assert memory.turns("ops") == sides(1, 3)
    assert sorted(memory.turns("billing")) == sorted(sides(1, 2))


def test_the_same_event_id_in_two_themes_is_two_events(memory: Memory) -> None:
    event = turn(1)
    assert memory.apply(event, replace(event, theme="billing")) == 2


# --- entries


def test_an_added_entry_is_one_row_with_all_that_was_known(memory: Memory) -> None:
    memory.apply(add("the door code is 4711", 5, metadata={"by": "tool"}), embedded=True)
    (row,) = memory.rows(
        "select agent_identity, home, target, content, created_at, updated_at, metadata, embedding is null, "
        "search @@ to_tsquery('english', 'doors & 4711') from memory_entries"
    )
    assert row == ("ops", "A", "memory", "the door code is 4711", at(5), at(5), {"by": "tool"}, False, True)


def test_an_entry_stands_once_in_a_theme_and_target(memory: Memory) -> None:
    memory.apply(add("tea"), add("tea"), add("tea", target="user"), add("tea", home="B"), add("tea", theme="billing"))
    assert memory.entries() == [("ops", "memory", "tea"), ("ops", "user", "tea"), ("billing", "memory", "tea")]


def test_an_entry_from_the_file_is_stored_once_for_all_themes_of_a_home(memory: Memory) -> None:
    memory.apply(add("from a hook", theme="billing"))
    found = add("from a hook", 5, from_file=True), add("of the file", 5, from_file=True)
    memory.apply(*found)
    memory.apply(add("of the file", 6, theme="billing", from_file=True))
    memory.apply(add("of the file", 6, target="user", from_file=True), add("of the file", 6, home="B", from_file=True))
    assert sorted(memory.entries()) == [
        ("billing", "memory", "from a hook"), ("ops", "memory", "of the file"), ("ops", "user", "of the file"),
    ]  # fmt: skip
    memory.apply(add("of the file", 7, theme="other", home="B", from_file=True))
    assert ("other", "memory", "of the file") in memory.entries(), "another home has a file of its own"


def test_a_removed_entry_is_gone_and_no_other(memory: Memory) -> None:
    memory.apply(add("tea"), add("tea", target="user"), add("tea", theme="billing"), add("tea time"))
    memory.apply(remove(previous="tea"))
    assert sorted(memory.entries()) == [
        ("billing", "memory", "tea"),
        ("ops", "memory", "tea time"),
        ("ops", "user", "tea"),
    ]


def test_an_add_that_comes_late_does_not_undo_its_remove(memory: Memory) -> None:
    late = add("tea", 1)
    memory.apply(remove(10, previous="tea"))
    memory.apply(late)
    assert memory.contents() == []
    memory.apply(add("tea", 5, home="B"))
    assert memory.contents() == ["tea"], "another home's entry is its own"


def test_a_remove_keeps_older_adds_of_all_themes_of_its_home_away_and_of_no_other(memory: Memory) -> None:
    memory.apply(remove(10, previous="tea"), remove(10, previous="mint", home=""))
    memory.apply(add("tea", 10, theme="billing"), swap("tea", 9, theme="lab", previous="coffee"))
    assert memory.entries() == []
    memory.apply(add("tea", 11, theme="billing"), add("tea", 1, theme="lab", home="B"))
    memory.apply(add("mint", 1, theme="billing", home=""), add("mint", 1, home=""))
    assert memory.entries() == [
        ("billing", "memory", "tea"),
        ("lab", "memory", "tea"),
        ("billing", "memory", "mint"),
    ]


def test_an_entry_added_again_after_its_remove_stays(memory: Memory) -> None:
    memory.apply(remove(10, previous="tea"), remove(12, previous="tea"), remove(11, previous="tea"))
    memory.apply(add("tea", 11.5))
    assert memory.contents() == []
    memory.apply(add("tea", 13))
    assert memory.contents() == ["tea"]


def test_a_replayed_add_does_not_bring_back_what_was_removed(memory: Memory) -> None:
    first = add("tea", 1)
    memory.apply(first, remove(10, previous="tea"))
    assert memory.apply(first) == 0
    assert memory.contents() == []


def test_a_replaced_entry_keeps_its_birthday_and_its_theme(memory: Memory) -> None:
    memory.apply(add("tea at four", 1, theme="billing"))
    memory.apply(swap("tea at five", 10, previous="tea at four", metadata={"n": 2}), embedded=True)
    found = memory.rows(
        "select agent_identity, content, created_at, updated_at, metadata, embedding is null from memory_entries"
    )
    assert found == [("billing", "tea at five", at(1), at(10), {"n": 2}, False)]


def test_a_replace_prefers_the_own_theme(memory: Memory) -> None:
    memory.apply(add("tea", 1, theme="billing"), add("tea", 2))
    memory.apply(swap("coffee", previous="tea"))
    assert sorted(memory.entries()) == [("billing", "memory", "tea"), ("ops", "memory", "coffee")]


def test_a_replace_of_an_entry_that_is_late_stores_the_new_and_not_the_old(memory: Memory) -> None:
    late = add("tea", 1)
    memory.apply(swap("coffee", 10, previous="tea"))
    memory.apply(late)
    assert memory.contents() == ["coffee"]


def test_a_replace_by_what_is_there_already_leaves_one_row(memory: Memory) -> None:
    memory.apply(add("tea", 1), add("coffee", 2))
    memory.apply(swap("coffee", previous="tea"))
    assert memory.contents() == ["coffee"]
    memory.apply(swap("coffee", 20, previous="coffee"))
    assert memory.contents() == ["coffee"]


def test_another_homes_entry_in_another_theme_is_never_touched(memory: Memory) -> None:
    memory.apply(add("tea", theme="billing", home="B"))
    memory.apply(remove(previous="tea"), remove(11, old_text="tea"), swap("coffee", 12, old_text="tea"))
    memory.apply(remove(13, previous="tea", home=""))
    assert ("billing", "memory", "tea") in memory.entries()


def test_homes_without_an_id_do_not_share_their_themes(memory: Memory) -> None:
    memory.apply(add("tea", theme="billing", home=""))
    memory.apply(remove(previous="tea", home=""), remove(11, old_text="tea", home=""))
    assert memory.entries() == [("billing", "memory", "tea")]


# --- which entry an old text means


def test_a_part_of_the_text_is_enough_when_one_row_holds_it(memory: Memory) -> None:
    memory.apply(add("drinks green tea"), add("lives in Graz"))
    memory.apply(remove(old_text="green", surviving=("lives in Graz",)))
    assert memory.contents() == ["lives in Graz"]
    memory.apply(swap("lives in Wien", 12, old_text="Graz"))
    assert memory.contents() == ["lives in Wien"]


def test_entries_that_are_still_in_the_file_are_not_meant(memory: Memory) -> None:
    memory.apply(add("green tea"), add("black tea"), add("tea pot"))
    memory.apply(remove(old_text="tea", surviving=("black tea", "tea pot")))
    assert memory.contents() == ["black tea", "tea pot"]
    memory.apply(swap("white tea", 12, old_text="tea", surviving=("tea pot", "white tea")))
    assert memory.contents() == ["tea pot", "white tea"]


def test_an_old_text_that_means_several_rows_touches_none(memory: Memory) -> None:
    memory.apply(add("green tea"), add("black tea"))
    memory.apply(remove(old_text="tea"))
    assert memory.contents() == ["green tea", "black tea"]
    memory.apply(swap("coffee", 12, old_text="tea"))
    assert memory.contents() == ["green tea", "black tea", "coffee"]


def test_another_homes_row_of_the_same_theme_is_not_meant_while_the_own_home_has_one(memory: Memory) -> None:
    memory.apply(add("tea at B's", home="B"), add("tea at A's"))
    memory.apply(remove(old_text="tea"))
    assert memory.contents() == ["tea at B's"]
    memory.apply(add("tea at A's", 20))
    memory.apply(swap("coffee at A's", 30, old_text="tea"))
    assert memory.contents() == ["tea at B's", "coffee at A's"]


def test_a_row_that_another_home_stored_first_is_removed_by_its_whole_text_only(memory: Memory) -> None:
    memory.apply(add("shared tea", home="B"), add("shared tea"))
    memory.apply(remove(old_text="tea"))
    assert memory.contents() == ["shared tea"]
    memory.apply(remove(previous="shared tea"))
    assert memory.contents() == []


def test_a_removal_takes_the_row_of_its_own_home_though_another_home_has_an_equal_one_nearer(memory: Memory) -> None:
    memory.apply(add("tea", home="B"), add("tea", theme="elsewhere"))
    memory.apply(remove(previous="tea"))
    assert memory.contents() == ["tea"]
    assert memory.contents(theme="elsewhere") == []


def test_what_was_read_from_a_file_goes_to_the_theme_that_claims_it(memory: Memory) -> None:
    memory.apply(add("tea", from_file=True, metadata={"origin": "file"}))
    memory.apply(add("tea", theme="billing"))
    assert memory.contents() == []
    assert memory.contents(theme="billing") == ["tea"]


def test_a_row_of_the_own_home_in_another_theme_is_meant_when_the_own_theme_has_none(memory: Memory) -> None:
    memory.apply(add("green tea", theme="billing"), add("lives in Graz"))
    memory.apply(remove(old_text="tea"))
    assert memory.entries() == [("ops", "memory", "lives in Graz")]


def test_a_row_of_another_target_is_not_meant(memory: Memory) -> None:
    memory.apply(add("green tea", target="user"))
    memory.apply(remove(old_text="tea"))
    assert memory.entries() == [("ops", "user", "green tea")]


@pytest.mark.parametrize("old_text", ["100%", "a_b", "%", "_", "\\", "'; drop table memory_entries; --", ".*"])
def test_signs_that_mean_something_elsewhere_mean_themselves(memory: Memory, old_text: str) -> None:
    memory.apply(add("a plain one: aXb, 1000"), add(f"it is {old_text} here"))
    memory.apply(remove(old_text=old_text))
    assert memory.contents() == ["a plain one: aXb, 1000"]


def test_a_change_that_names_nothing_touches_nothing(memory: Memory) -> None:
    memory.apply(add("green tea"))
    memory.apply(remove(), remove(11, old_text="coffee"))
    assert memory.contents() == ["green tea"]


# --- a session as the host replays it


def ended(seconds: float, *turns: tuple[str, str], **more: Any) -> SessionEnded:
    return SessionEnded(theme="ops", session_id="s", at=at(seconds), turns=turns, **more)


def test_only_the_turns_that_are_missing_are_added(memory: Memory) -> None:
    memory.apply(turn(1), turn(3))
    replay = ended(60, *((f"question {n}", f"answer {n}") for n in (1, 2, 3, 4)), parent_session_id="p")
    assert memory.apply(replay) == 1
    assert memory.apply(replay) == 0
    assert memory.turns() == sides(1, 3, 2, 4)
    assert memory.apply(replace(replay, id=turn(0).id)) == 1
    assert memory.turns() == sides(1, 3, 2, 4)
    parents = memory.rows("select distinct parent_session_id from conversations where content like '% 2'")
    assert parents == [("p",)]


def test_the_same_answer_given_three_times_is_kept_three_times(memory: Memory) -> None:
    memory.apply(*(replace(turn(n), assistant="yes, done as you asked") for n in (1, 2)))
    memory.apply(ended(60, *((f"question {n}", "yes, done as you asked") for n in (1, 2, 3))))
    assert sum(content == "yes, done as you asked" for _, content in memory.turns()) == 3


def test_of_turns_with_the_same_answer_the_one_that_was_not_asked_is_missing(memory: Memory) -> None:
    memory.apply(replace(turn(2), assistant="Done."))
    # Something else was said in the session, and another one has the same turn.
    memory.apply(turn(3), replace(turn(1), assistant="Done.", session_id="t"))
    memory.apply(ended(60, *((f"question {n}", "Done.") for n in (1, 2))))
    found = memory.rows("select content from conversations where session_id = 's' and role = 'user' order by content")
    assert found == [("question 1",), ("question 2",), ("question 3",)]
    assert sum(content == "Done." for _, content in memory.turns()) == 2


def test_a_question_that_the_host_rewrote_is_not_stored_again(memory: Memory) -> None:
    memory.apply(turn(1))
    memory.apply(ended(60, ("[context] question 1", "answer 1")))
    assert memory.turns() == sides(1)


@pytest.mark.parametrize("where", ["s", "p"])
def test_an_answered_turn_takes_the_place_of_one_question_without_an_answer(memory: Memory, where: str) -> None:
    """The same words earlier in the session, or in the one before it, count neither for it nor against it."""
    first, *unanswered = (replace(turn(n), user="Go on.") for n in (1, 2, 3))
    memory.apply(replace(first, session_id=where), *(replace(each, assistant="") for each in unanswered))
    # Where the first turn was in this session, it is not in the transcript any more: it was compressed.
    before = [] if where == "s" else [("Go on.", "answer 1")]
    memory.apply(ended(60, *before, ("Go on.", "answer 4"), ancestors=("p",)))
    assert memory.turns()[-3:] == [*[("user", "Go on.")] * 2, ("assistant", "answer 4")]
    assert len(memory.turns()) == (5 if where == "s" else 3)


def test_replayed_turns_are_embedded_later_and_found_by_words_at_once(memory: Memory) -> None:
    memory.apply(ended(60, ("question 1", "answer 1")))
    assert memory.rows("select embedding is null, search is null from conversations") == [(True, False)] * 2


def test_an_empty_replay_is_an_event_all_the_same(memory: Memory) -> None:
    replay = ended(60)
    assert (memory.apply(replay), memory.apply(replay)) == (1, 0)


pairs = st.lists(st.tuples(st.sampled_from("uvw"), st.sampled_from("abc")), max_size=8)


@given(pairs, pairs)
def test_what_is_stored_and_what_is_missing_make_up_the_replay(
    replayed: list[tuple[str, str]], stored: list[tuple[str, str]]
) -> None:
    missing = missing_turns(replayed, Counter(stored))
    remaining = iter(replayed)
    assert all(pair in remaining for pair in missing), "in the order of the replay"
    wanted, have = Counter(answer for _, answer in replayed), Counter(answer for _, answer in stored)
    assert Counter(answer for _, answer in missing) == wanted - have
    assert Counter(missing) <= Counter(replayed) - Counter(stored), "none of them is stored as it was replayed"


# --- delegation


def test_a_delegation_is_two_rows_and_an_edge(memory: Memory) -> None:
    event = Delegated(
        theme="ops", home="A", session_id="s", at=at(1), task="count the hosts", result="there are 12",
        child_session_id="c", metadata={"depth": 1},
    )  # fmt: skip
    assert (memory.apply(event, embedded=True), memory.apply(event)) == (1, 0)
    assert memory.turns() == [("user", "count the hosts"), ("assistant", "there are 12")]
    assert memory.rows("select metadata from conversations") == [({"depth": 1, "delegated_to": "c"},)] * 2
    edge = memory.rows(
        "select agent_identity, event_id::text, parent_session_id, child_session_id, task, result, at, metadata "
        "from memory_agent_edges"
    )
    assert [(*row[:1], row[1].replace("-", ""), *row[2:]) for row in edge] == [
        ("ops", event.id, "s", "c", "count the hosts", "there are 12", at(1), {"depth": 1})
    ]
    assert memory.rows("select agent_identity, session_id, kind, first_seen from memory_agents") == [
        ("ops", "c", "child", at(1))
    ]


def test_a_child_that_is_asked_twice_is_one_agent_with_two_edges(memory: Memory) -> None:
    common: dict[str, Any] = {"theme": "ops", "session_id": "s", "child_session_id": "c"}
    memory.apply(
        Delegated(at=at(5), task="one", result="1", **common), Delegated(at=at(2), task="two", result="2", **common)
    )
    assert memory.rows("select first_seen, last_seen from memory_agents") == [(at(5), at(5))]
    assert memory.rows("select count(*) from memory_agent_edges") == [(2,)]


# --- events that Postgres does not take


@pytest.mark.parametrize("text", ["a NUL \0 in it", "half a character \ud800"])
@pytest.mark.parametrize("place", ["user", "session_id", "theme", "parent_session_id"])
def test_a_text_that_postgres_does_not_take_is_a_bad_event(memory: Memory, text: str, place: str) -> None:
    bad = replace(turn(2), **{place: text})  # type: ignore[arg-type]
    with pytest.raises(BadEvent) as caught:
        memory.apply(turn(1), bad)
    assert text not in str(caught.value)
    assert memory.turns() == []
    assert memory.apply(turn(1)) == 1, "the connection is as good as before"


@pytest.mark.parametrize(
    "event",
    [
        replace(turn(1), id="not-a-uuid"),
        replace(add("tea"), target="notes"),  # type: ignore[arg-type]
        replace(add("tea"), content="nul \0"),
    ],
)
def test_an_event_that_breaks_a_rule_of_the_schema_is_a_bad_event(memory: Memory, event: Event) -> None:
    with pytest.raises(BadEvent):
        memory.apply(event)
    assert memory.apply(turn(2)) == 1


@pytest.mark.parametrize("wrong", [[0.5] * 3, [1e6] * 384, [float("nan")] * 384])
def test_a_vector_that_does_not_fit_is_a_bad_event(memory: Memory, wrong: Sequence[float]) -> None:
    prepared = prepare(turn(1))
    prepared.passages[0].vector = list(wrong)
    with pytest.raises(BadEvent), memory.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepared])
    assert memory.turns() == []


def test_huge_texts_are_stored_whole(memory: Memory) -> None:
    text = "word-7 " * 125_000
    memory.apply(replace(turn(1), user=text, assistant="漢字" * 300_000))
    assert [len(content) for _, content in memory.turns()] == [len(text), 600_000]


def test_an_add_and_a_remove_stored_at_once_see_each_other(memory: Memory) -> None:
    added = Add(theme="ops", home="h", at=at(1), target="memory", content="green tea")
    removed = Remove(theme="ops", home="h", at=at(2), target="memory", previous="green tea")
    other = threading.Thread(target=memory.apply, args=(removed,))
    with memory.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepare(added)])
        other.start()
        other.join(0.5)
        assert other.is_alive(), "it waits for what the other one does"
    other.join(20)
    assert memory.contents() == []


def test_two_replays_of_a_session_stored_at_once_see_each_other(memory: Memory) -> None:
    told = [SessionEnded(theme="ops", home="h", session_id="s", at=at(n), turns=(("why?", "so"),)) for n in (1, 2)]
    other = threading.Thread(target=memory.apply, args=(told[1],))
    with memory.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepare(told[0])])
        other.start()
        other.join(0.5)
        assert other.is_alive(), "it waits for what the other one does"
    other.join(20)
    assert [content for _, content in memory.turns()] == ["why?", "so"]
