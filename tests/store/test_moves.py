"""Moves of rows to a person or a new name, while agents go on: everything is there once, and has its last state."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import not_on_citus
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from moving import LAPTOP, NAMES, PERSON, PHONE, START, Memory, begin, entry, fact, turn, withdrawn
from waiting import wait_for

from hermes_memory_pgvector.errors import Refused
from hermes_memory_pgvector.model import (
    Attributed,
    Delegated,
    Event,
    FactKind,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
    Withdrawn,
)
from hermes_memory_pgvector.store import facts, moves, person_links, pruning, renames, rows
from hermes_memory_pgvector.store.archive import writing
from hermes_memory_pgvector.store.archive.lines import Line
from hermes_memory_pgvector.store.erasure import selection
from hermes_memory_pgvector.store.erasure.selection import Selection
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.text.masks import masked


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    with Memory(database, tmp_path) as opened:
        yield opened


@NAMES
def test_turns_that_are_withdrawn_before_they_are_moved_do_not_come_back(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("kept", source), turn("taken back", source), turn("taken back", source))
    begin(memory, source, place, mark)
    memory.apply(withdrawn(source, standing=1))
    assert memory.contents(source) == ["kept?", "kept!", "taken back?", "taken back!"]
    memory.apply(withdrawn(source))
    assert memory.contents(source) == ["kept?", "kept!"]
    memory.move(source, place, mark=mark)
    assert memory.contents(place) == ["kept?", "kept!"]


@NAMES
def test_of_equal_turns_that_are_withdrawn_while_they_are_moved_as_many_stay_as_should(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("taken back", source), turn("taken back", source))
    begin(memory, source, place, mark)
    with memory.database.transaction(10, 20) as connection:
        assert moves.move(connection, source, place, mark=mark, limit=2) == 2
    memory.apply(withdrawn(source, standing=1))
    memory.move(source, place, mark=mark)
    assert memory.contents(place) == ["taken back?", "taken back!"]


@not_on_citus.waits
@NAMES
def test_a_turn_that_is_withdrawn_at_the_moment_of_its_move_does_not_come_back(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("taken back", source), turn("kept", source))
    begin(memory, source, place, mark)
    withdrawing = threading.Thread(target=memory.apply, args=(withdrawn(source),))
    with memory.database.transaction(10, 20) as connection:
        moves.move(connection, source, place, mark=mark)
        withdrawing.start()
        waiting = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        wait_for(lambda: bool(memory.psql(waiting)), 10)
    withdrawing.join(20)
    assert memory.contents(place) == ["kept?", "kept!"]


@NAMES
def test_a_batch_of_an_agent_and_one_of_a_move_do_not_lock_each_other_out(
    memory: Memory, source: str, place: str, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.apply(entry("tea", source, metadata={"saves": ["tea"]}), turn("one", source), fact("loam", source))
    begin(memory, source, place, mark)
    with ThreadPoolExecutor(1) as beside:
        begun: list[Future[int]] = []
        lock = facts.lock

        def locked_late(*arguments: Any) -> None:
            begun.append(beside.submit(memory.move, source, place, mark=mark))
            time.sleep(1)
            lock(*arguments)

        monkeypatch.setattr("hermes_memory_pgvector.store.facts.lock", locked_late)
        made = Attributed(theme=source, saves=("tea",), metadata={"tools": ["web_search"]})
        assert memory.apply(made, fact("sand", source)) == 2
        assert begun[0].result(20) > 0
    assert memory.psql("select metadata -> 'tools' ->> 0 from memory_entries") == [("web_search",)]


def test_a_move_ends_when_its_names_part(memory: Memory) -> None:
    memory.apply(turn("one", "old"), turn("two", "old"), turn("three", "a"))
    begin(memory, "old", "new", "")
    begin(memory, "a", "b", "")

    def moved(old: str, new: str) -> int:
        with memory.database.transaction(10, 20) as connection:
            return renames.move(connection, old, new, 2)

    assert moved("old", "new") == 2
    with memory.database.transaction(10, 20) as connection:
        assert renames.release(connection, "old") == "new"
    memory.apply(turn("mine", "old"))
    assert moved("old", "new") == 0
    assert "mine?" in memory.contents("old")
    assert moved("a", "b") == 2
    # Taken back by another command, while the first one goes on.
    begin(memory, "b", "a", "")
    assert (moved("a", "b"), moved("b", "a"), moved("a", "b"), moved("b", "a")) == (0, 2, 0, 0)
    assert memory.contents("a") == ["three?", "three!"]


def ended(theme: str, *texts: str, **more: Any) -> SessionEnded:
    turns = tuple((f"{text}?", f"{text}!") for text in texts)
    return SessionEnded(theme=theme, home="h", session_id="s", turns=turns, **more)


def erase(memory: Memory, chosen: Selection) -> None:
    chosen = memory.run(partial(selection.begin, selection=chosen))
    list(selection.mark(memory.run, chosen))
    list(selection.delete(memory.run, chosen))


def test_what_was_erased_stays_away_when_its_names_part(memory: Memory) -> None:
    secret, late = turn("secret"), turn("secret", "old")
    memory.apply(secret, turn("kept"), late)
    memory.link(PHONE)
    begin(memory, "old", "new", "")
    memory.move("old", "new")
    begin(memory, "first", LAPTOP, "")
    erase(memory, Selection(text="secret"))
    # It led to the account while its text was erased, and leads to the person now.
    memory.link(LAPTOP)
    memory.apply(turn("secret", "first"))
    memory.unlink(PHONE)
    with memory.database.transaction(10, 20) as connection:
        assert renames.release(connection, "old") == "new"
        rows.forget(connection, PHONE, [secret.id])
        rows.forget(connection, "old", [late.id])
    memory.apply(secret, late)
    assert memory.contents(PHONE) == ["kept?", "kept!"]
    assert memory.contents("old") == memory.contents("new") == []


def test_turns_that_are_withdrawn_while_they_go_back_to_their_account_stay_away(memory: Memory) -> None:
    memory.apply(turn("kept"), turn("taken back"))
    memory.link(PHONE)
    memory.move(PERSON, PHONE, account=PHONE, kinds=("turns",))
    memory.apply(withdrawn(PHONE))
    memory.unlink(PHONE)
    assert memory.contents(PHONE) == ["kept?", "kept!"]
    assert memory.left(PERSON) == {}


@NAMES
def test_a_replay_of_turns_that_are_moved_after_it_stores_none_of_them_twice(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("one", source), turn("two", source))
    begin(memory, source, place, mark)
    memory.apply(ended(source, "one", "two", "three"))
    memory.move(source, place, mark=mark)
    assert sorted(memory.contents(place)) == ["one!", "one?", "three!", "three?", "two!", "two?"]


@NAMES
def test_what_was_pruned_before_its_move_does_not_come_back(memory: Memory, source: str, place: str, mark: str) -> None:
    memory.apply(turn("one", source), turn("two", source), turn("two", source))
    begin(memory, source, place, mark)
    prune = partial(pruning.Pruning("turns", source, pruning.Prunable(chars=1)).batch, rows=4)
    assert memory.run(prune) == 4
    memory.move(source, place, mark=mark)
    prune = partial(pruning.Pruning("turns", place, pruning.Prunable(chars=1)).batch, rows=4)
    assert memory.run(prune) == 2
    memory.apply(ended(source, "one", "two", "two"))
    assert memory.contents(place) == []


@NAMES
def test_a_replay_that_comes_again_is_stored_once(memory: Memory, source: str, place: str, mark: str) -> None:
    memory.apply(ended(source, "one", "two"))
    begin(memory, source, place, mark)
    memory.apply(ended(source, "one", "two"))
    memory.move(source, place, mark=mark)
    memory.apply(ended(place, "one", "two"))
    assert sorted(memory.contents(place)) == ["one!", "one?", "two!", "two?"]


@NAMES
def test_a_replay_beside_a_batch_of_a_move_stores_nothing_twice(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("one", source), turn("two", source))
    begin(memory, source, place, mark)
    replaying = threading.Thread(target=memory.apply, args=(ended(source, "one", "two"),))
    with memory.database.transaction(10, 20) as connection:
        moves.move(connection, source, place, mark=mark, limit=2)
        replaying.start()
        replaying.join(1)
    replaying.join(20)
    memory.move(source, place, mark=mark)
    assert sorted(memory.contents(place)) == ["one!", "one?", "two!", "two?"]


def test_a_replay_beside_a_move_back_to_the_account_stores_nothing_twice(memory: Memory) -> None:
    memory.apply(turn("one"), turn("two"))
    memory.link(PHONE)
    memory.move(PERSON, PHONE, account=PHONE, kinds=("turns",))
    memory.apply(ended(PHONE, "one", "two"))
    memory.unlink(PHONE)
    assert sorted(memory.contents(PHONE)) == ["one!", "one?", "two!", "two?"]


def test_a_masked_turn_that_is_withdrawn_under_the_new_name_does_not_come_back(memory: Memory) -> None:
    secret = "the key is sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD ok"
    memory.apply(TurnTaken(theme="old", home="h", session_id="s", user="q", assistant=secret))
    begin(memory, "old", "new", "")
    masks = (("q", masked(secret)),)
    memory.apply(Withdrawn(theme="new", home="h", session_id="s", turns=masks, standing=(0,)))
    memory.move("old", "new")
    assert memory.contents("new") == []


def archived(memory: Memory, theme: str) -> writing.Batch:
    """The turns of a theme as lines of an archive."""
    columns = "agent_identity as theme, session_id, parent_session_id, role, content, ts, metadata"
    stored = memory.psql(f"select to_jsonb(t) from (select {columns} from conversations order by id) as t")
    found = [row for (row,) in stored if row["theme"] == theme]
    return writing.Batch("turn", theme, [Line(n, "turn", row, json.dumps(row)) for n, row in enumerate(found)])


@NAMES
def test_an_archive_of_turns_that_are_not_moved_yet_adds_none_of_them(
    memory: Memory, source: str, place: str, mark: str
) -> None:
    memory.apply(turn("one", source), turn("two", source))
    batch = archived(memory, source)
    begin(memory, source, place, mark)
    assert memory.run(partial(writing.store, batch=batch, to=writing.Destination())) == 0
    memory.psql("delete from conversations where content like 'two%%'")
    assert memory.run(partial(writing.store, batch=batch, to=writing.Destination())) == 2
    memory.move(source, place, mark=mark)
    assert sorted(memory.contents(place)) == ["one!", "one?", "two!", "two?"]


@pytest.mark.parametrize("withdrawing", [True, False])
def test_turns_of_an_archive_are_counted_by_events_beside_it(memory: Memory, withdrawing: bool) -> None:
    memory.apply(turn("taken back", "t"), turn("kept", "t"))
    batch = archived(memory, "t")
    memory.psql("delete from conversations")
    event = withdrawn("t") if withdrawing else ended("t", "taken back", "kept")
    beside = threading.Thread(target=memory.apply, args=(event,))
    with memory.database.transaction(10, 20) as connection:
        writing.store(connection, batch, writing.Destination())
        beside.start()
        beside.join(1)
    beside.join(20)
    left = ["kept?", "kept!"]
    assert memory.contents("t") == (left if withdrawing else ["taken back?", "taken back!", *left])


@NAMES
def test_a_session_is_erased_under_all_names(memory: Memory, source: str, place: str, mark: str) -> None:
    memory.apply(turn("one", source), turn("two", source))
    begin(memory, source, place, mark)
    themes = memory.run(partial(person_links.themes_of, theme=source))
    chosen = memory.run(partial(selection.begin, selection=Selection(session="s", themes=themes)))
    list(selection.mark(memory.run, chosen))
    memory.move(source, place, mark=mark)
    list(selection.delete(memory.run, chosen))
    memory.apply(ended(source, "one", "two", at=START))
    assert memory.contents(place) == memory.contents(source) == []


@NAMES
@pytest.mark.parametrize("begun", [True, False])
def test_an_erasure_says_that_its_theme_was_linked_or_renamed_meanwhile(
    memory: Memory, source: str, place: str, mark: str, begun: bool
) -> None:
    memory.apply(turn("one", source), turn("two", source))

    def chosen() -> Selection:
        return Selection(themes=memory.run(partial(person_links.themes_of, theme=source)))

    before = memory.run(partial(selection.begin, selection=chosen())) if begun else chosen()
    begin(memory, source, place, mark)
    memory.move(source, place, mark=mark)
    with pytest.raises(Refused, match="linked or renamed meanwhile"):
        list(selection.delete(memory.run, before)) if begun else erase(memory, before)
    erase(memory, chosen())
    assert memory.contents(place) == memory.contents(source) == []


def test_an_erased_turn_of_a_delegation_leaves_no_task_and_no_result(memory: Memory) -> None:
    tasks = [("dig", "dug"), ("sow", "sown")]
    memory.apply(
        *(Delegated(theme="t", home="h", session_id="s", task=t, result=r, child_session_id="c") for t, r in tasks)
    )
    ids = tuple(row[0] for row in memory.psql("select id from conversations where content in ('dig', 'dug')"))
    erase(memory, Selection(kind="turns", ids=ids))
    assert memory.psql("select task, result from memory_agent_edges") == [("sow", "sown")]


@NAMES
@pytest.mark.parametrize("change", ["update", "supersede", "remove", "replace", "attribute"])
def test_changes_of_an_entry_find_it_under_its_new_name(
    memory: Memory, source: str, place: str, mark: str, change: str
) -> None:
    memory.apply(entry("tea", source, metadata={"saves": ["tea"]}))
    [(number,)] = memory.psql("select id from memory_entries")
    begin(memory, source, place, mark)
    changes: dict[str, tuple[Event, list[tuple[str, list[str] | None]]]] = {
        "update": (Update(theme=source, home="h", entry_id=number, content="coffee"), [("coffee", None)]),
        "supersede": (entry("coffee", source, supersedes=number), [("coffee", None)]),
        "remove": (Remove(theme=source, home="h2", target="memory", previous="tea"), []),
        "replace": (
            Replace(theme=source, home="h2", target="memory", previous="tea", content="coffee"), [("coffee", None)]
        ),
        "attribute": (
            Attributed(theme=place, saves=("tea",), metadata={"tools": ["web_search"]}), [("tea", ["web_search"])]
        ),
    }  # fmt: skip
    event, expected = changes[change]
    memory.apply(event)
    memory.move(source, place, mark=mark)
    assert memory.psql("select content, metadata -> 'tools' from memory_entries") == expected


@NAMES
@pytest.mark.parametrize("change", ["obs", "done", "closing", "purge", "no scope"])
def test_changes_of_facts_find_them_under_their_new_name(
    memory: Memory, source: str, place: str, mark: str, change: str
) -> None:
    memory.apply(fact("clay", source), fact("loam", source))
    begin(memory, source, place, mark)
    of_scope = {"theme": source, "session_id": "s", "scope": "bed"}
    changes: dict[str, tuple[Event, list[tuple[str, str]], bool]] = {
        "obs": (
            FactWritten(**of_scope, kind="obs", target="soil", content="gone"),
            [("clay", "superseded"), ("loam", "superseded"), ("gone", "active")], True,
        ),
        "done": (
            FactWritten(**of_scope, kind="done", target="bed", content="dug"),
            [("clay", "superseded"), ("loam", "cold"), ("dug", "cold")], False,
        ),
        "closing": (
            FactsTicked(theme=source, session_id="s", turn=3, closing=True),
            [("clay", "superseded"), ("loam", "cold")], False,
        ),
        "purge": (FactsPurged(theme=source), [("loam", "active")], True),
        "no scope": (
            fact("sand", source, scope=""),
            [("clay", "superseded"), ("loam", "superseded"), ("sand", "active")], True,
        ),
    }  # fmt: skip
    event, expected, scope_open = changes[change]
    memory.apply(event)
    memory.move(source, place, mark=mark)
    assert memory.psql("select content, status from facts order by id") == expected
    assert memory.psql("select label, closed_at is null from fact_scopes") == [("bed", scope_open)]


@pytest.mark.on_citus
@pytest.mark.parametrize("accounts", [(PHONE, LAPTOP), (LAPTOP, PHONE)])
def test_an_obsolete_fact_supersedes_older_ones_of_each_kind_whichever_of_them_is_moved(
    memory: Memory, accounts: tuple[str, str]
) -> None:
    kinds: list[tuple[str, FactKind, str]] = [(PHONE, "D", "loam"), (LAPTOP, "obs", "gone"), (PHONE, "C", "peat")]
    for minutes, (theme, kind, text) in enumerate(kinds):
        memory.apply(replace(fact(text, theme), kind=kind, at=START + timedelta(minutes=minutes)))
    memory.link(*accounts)
    found = memory.psql(
        "select f.content, f.status, n.content from facts f left join facts n "
        "on n.agent_identity = f.agent_identity and n.id = f.superseded_by order by f.written_at"
    )
    assert found == [("loam", "superseded", "gone"), ("gone", "active", None), ("peat", "active", None)]


def test_entries_of_an_account_that_is_being_separated_are_still_those_of_its_person(memory: Memory) -> None:
    memory.apply(entry("tea"), turn("one"), turn("two", LAPTOP), fact("clay"))
    memory.link(PHONE, LAPTOP)
    memory.move(PERSON, PHONE, account=PHONE, kinds=("turns",))
    memory.apply(
        Remove(theme=PHONE, home="h2", target="memory", previous="tea"),
        FactWritten(theme=PHONE, session_id="s", scope="bed", kind="obs", target="soil", content="gone"),
    )
    memory.unlink(PHONE)
    assert memory.contents(PHONE) == ["one?", "one!"]
    assert memory.psql("select content, status from facts order by id") == [("clay", "superseded"), ("gone", "active")]
    assert memory.contents(PERSON) == ["two?", "two!"]


def test_a_pruned_turn_counts_once_however_often_its_account_is_linked(memory: Memory) -> None:
    for _ in range(3):
        memory.apply(turn("ok"))
        memory.run(partial(pruning.Pruning("turns", PHONE, pruning.Prunable(chars=1)).batch, rows=4))
        memory.link(PHONE)
        memory.apply(turn("ok"))
        memory.run(partial(pruning.Pruning("turns", PERSON, pruning.Prunable(chars=1)).batch, rows=4))
        memory.unlink(PHONE)
    assert memory.psql("select times from memory_pruned_turns where agent_identity = %s", PHONE) == [(6,)]
    memory.link(PHONE)
    memory.apply(ended(PHONE, *["ok"] * 7))
    assert memory.contents(PERSON) == ["ok?", "ok!"]


def test_history_waits_for_entries_and_facts(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "ROWS_AT_ONCE_MAX", 4)
    memory.psql(
        "insert into memory_history (agent_identity, entry_id, target, content, created_at, updated_at, metadata, "
        "gone_at, how) select %s, n, 'memory', n::text, now(), now(), '{}', now(), 'removed' "
        "from generate_series(1, 9) n",
        PHONE,
    )
    memory.apply(entry("tea"), entry("soap"), fact("loam"))
    assert memory.run(partial(person_links.link, account=PHONE, person=PERSON)) == 3
    assert memory.left(PHONE) == {"memory_history": 9}
    memory.move(PHONE, PERSON, mark=PHONE)
    assert memory.left(PHONE) == {}


def test_two_erasures_do_not_wait_for_each_other(memory: Memory) -> None:
    memory.apply(turn("one", "a"), turn("two", "b"))

    def begun(theme: str) -> Selection:
        with memory.database.transaction(10, 20) as connection:
            chosen = selection.begin(connection, Selection(themes=(theme,)))
            time.sleep(0.3)
            return chosen

    with ThreadPoolExecutor(2) as both:
        assert [chosen.themes for chosen in both.map(begun, "ab")] == [("a",), ("b",)]


def test_the_theme_of_a_person_whose_account_has_an_old_name_is_erased(memory: Memory) -> None:
    memory.apply(turn("one", "first"))
    begin(memory, "first", "ops", "")
    memory.move("first", "ops")
    memory.link("ops")
    for name in ("first", "ops", PERSON):
        themes = memory.run(partial(person_links.themes_of, theme=name))
        assert (themes[0], set(themes)) == (name, {"first", "ops", PERSON})
    memory.apply(ended(PERSON, "one"))
    assert memory.contents(PERSON) == ["one?", "one!"]
    erase(memory, Selection(themes=themes))
    assert memory.contents(PERSON) == []


def test_of_many_entries_some_are_moved_with_the_name_and_the_others_after_it(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moves, "ROWS_MAX", 2)
    monkeypatch.setattr(moves, "ROWS_AT_ONCE_MAX", 4)
    texts = [f"entry {number}" for number in range(7)]
    memory.apply(*(entry(text) for text in texts), turn("one"))
    assert memory.run(partial(person_links.link, account=PHONE, person=PERSON)) == 4
    assert memory.contents(PERSON) == texts[:4]
    memory.move(PHONE, PERSON, mark=PHONE)
    assert memory.contents(PERSON) == [*texts, "one?", "one!"]


def test_many_rows_are_moved_in_batches(memory: Memory) -> None:
    count = 2 * moves.ROWS_MAX + 1
    memory.psql(
        "insert into conversations (agent_identity, role, content) "
        f"select %s, 'user', n::text from generate_series(1, {count}) n", PHONE,
    )  # fmt: skip
    with memory.database.transaction(10, 20) as connection:
        person_links.link(connection, PHONE, PERSON)
    assert memory.move(PHONE, PERSON, mark=PHONE) == 3
    assert len(memory.contents(PERSON)) == count


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "again", "replay", "take back", "begin", "link", "unlink", "old", "upkeep"]),
        st.sampled_from([PHONE, LAPTOP]),
    ),
    max_size=14,
)


@example([("say", PHONE), ("begin", PHONE), ("take back", PHONE), ("upkeep", PHONE), ("unlink", PHONE)])
@example([("link", PHONE), ("old", PHONE), ("again", PHONE), ("upkeep", PHONE), ("unlink", PHONE), ("again", PHONE)])
@given(STEPS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@not_on_citus.earlier_release
def test_whatever_the_order_every_row_is_there_once_and_goes_back_to_its_account(
    memory: Memory, steps: list[tuple[str, str]]
) -> None:
    memory.psql(
        "truncate memory_person_links, conversations, memory_entries, memory_events, memory_history, "
        "memory_withdrawals cascade"
    )
    said: dict[str, list[TurnTaken]] = {PHONE: [], LAPTOP: []}
    linked: set[str] = set()
    for number, (step, account) in enumerate(steps):
        match step:
            case "say" | "old":
                said[account].append(turn(f"{number}", account))
                if step == "say":
                    memory.apply(said[account][-1])
                else:
                    with memory.database.transaction(10, 20) as connection:
                        rows._add_turns(
                            connection, {account: [(said[account][-1], prepare(said[account][-1]).passages)]}
                        )
            case "again":
                memory.apply(*said[account])
            case "replay":
                turns = tuple((each.user, each.assistant) for each in said[account])
                memory.apply(SessionEnded(theme=account, home="h", session_id="s", turns=turns))
            case "take back" if said[account]:
                back = said[account].pop()
                memory.apply(
                    Withdrawn(
                        theme=account, home="h", session_id="s", turns=((back.user, back.assistant),), standing=(0,)
                    )
                )
            case "begin" if account not in linked:
                begin(memory, account, PERSON, account)
                linked.add(account)
            case "link" if account not in linked:
                memory.link(account)
                linked.add(account)
            case "unlink" if account in linked:
                memory.unlink(account)
                linked.remove(account)
            case "upkeep":
                with memory.database.transaction(10, 20) as connection:
                    person_links.move_unmoved(connection, 10)
        everything = sorted(each for theme in (PERSON, PHONE, LAPTOP) for each in memory.contents(theme))
        assert everything == sorted(text for turns in said.values() for t in turns for text in (t.user, t.assistant))
    for account in list(linked):
        memory.unlink(account)
    for account, turns in said.items():
        assert sorted(memory.contents(account)) == sorted(text for t in turns for text in (t.user, t.assistant))
    assert memory.left(PERSON) == {}
