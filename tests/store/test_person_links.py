"""Links of accounts to persons: where events and rows are, whatever comes twice, late, or from an old process."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import not_on_citus
import psycopg
import pytest
from moving import CONTENT, LAPTOP, PERSON, PHONE, ROOM, START, Memory, entry, fact, turn

from hermes_memory_pgvector.model import (
    Add,
    Delegated,
    FactsPurged,
    FactsTicked,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Withdrawn,
)
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import out_of_order, person_links, renames, rows
from hermes_memory_pgvector.store.connection import messages
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import QUERIES
from hermes_memory_pgvector.write.maintenance import Maintenance


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    with Memory(database, tmp_path) as opened:
        yield opened


@pytest.mark.each_version
def test_the_rows_of_an_account_become_those_of_the_person_with_ids_vectors_times_and_history(memory: Memory) -> None:
    memory.apply(
        turn("one"), turn("two"), entry("tea"), entry("mild soap"),
        Replace(theme=PHONE, home="h", target="memory", content="strong soap", previous="mild soap"),
        Delegated(theme=PHONE, home="h", session_id="s", task="dig", result="dug", child_session_id="c"),
        fact("loam"), fact("sand"),
    )  # fmt: skip
    vector = json.dumps([1.0] * 384)
    for table, pieces in (
        ("memory_entries", "memory_entry_pieces"), ("conversations", "conversation_pieces"), ("facts", "fact_pieces")
    ):  # fmt: skip
        memory.psql(f"update {table} set embedding = %s::vector::halfvec", vector)
        memory.psql(f"insert into {pieces} select agent_identity, id, 0, embedding from {table}")
    columns = "id, content, embedding::text, search::text"
    query = (
        f"select {columns}, '' from memory_entries union all select {columns}, '' from conversations "
        f"union all select {columns}, status from facts order by 1, 2"
    )
    before, history = memory.psql(query), memory.psql("select id, content, how from memory_history")
    held = memory.left(PHONE)
    assert set(held) == set(CONTENT)
    memory.link(PHONE)
    assert memory.psql(query) == before
    assert memory.psql("select id, content, how from memory_history") == history
    assert memory.left(PHONE) == {}
    assert memory.left(PERSON) == held
    assert {row[0] for row in memory.psql("select metadata ->> 'linked_account' from conversations")} == {PHONE}


def test_later_events_of_an_account_are_stored_under_the_person_each_once(memory: Memory) -> None:
    early, late = turn("early"), turn("late", LAPTOP)
    memory.apply(early)
    memory.link(PHONE, LAPTOP)
    assert memory.apply(early, late, entry("tea", LAPTOP), turn("beside", "ops")) == 3
    assert memory.apply(early, late) == 0
    assert memory.contents(PERSON) == ["tea", "early?", "early!", "late?", "late!"]
    assert memory.contents("ops") == ["beside?", "beside!"]
    assert memory.left(PHONE) == memory.left(LAPTOP) == {}


def test_what_was_done_before_the_link_holds_after_it(memory: Memory) -> None:
    """A remove and a withdrawal that came before what they remove, and a replay of what is stored."""
    memory.apply(
        Remove(theme=PHONE, home="h", target="memory", previous="gone", at=START + timedelta(hours=1)),
        turn("kept", at=START),
        Withdrawn(
            theme=PHONE, home="h", session_id="s", at=START + timedelta(hours=1), turns=(("no?", "no!"),), standing=(0,)
        ),
    )  # fmt: skip
    memory.link(PHONE)
    memory.apply(entry("gone", at=START), turn("no", at=START + timedelta(minutes=1)))
    memory.apply(SessionEnded(theme=PHONE, home="h", session_id="s", turns=(("kept?", "kept!"),)))
    assert memory.contents(PERSON) == ["kept?", "kept!"]
    memory.apply(Remove(theme=PHONE, home="h", target="memory", previous="tea"), entry("tea", at=START))
    assert memory.contents(PERSON) == ["kept?", "kept!"]


def test_an_entry_that_two_accounts_have_is_kept_once_and_the_other_one_in_the_history(memory: Memory) -> None:
    memory.apply(entry("tea"), entry("tea", LAPTOP, metadata={"colour": "green"}), entry("soap", LAPTOP))
    memory.link(PHONE, LAPTOP)
    assert memory.contents(PERSON) == ["tea", "soap"]
    past = memory.psql("select agent_identity, how, content, metadata ->> 'colour' from memory_history")
    assert past == [(PERSON, "moved", "tea", "green")]


def facts_of(memory: Memory, theme: str) -> list[tuple[str, str]]:
    return memory.psql("select content, status from facts where agent_identity = %s order by written_at", theme)


def test_of_the_current_facts_of_two_accounts_with_one_key_the_newest_stays_current(memory: Memory) -> None:
    memory.apply(fact("loam"), fact("clay", LAPTOP), fact("silt", LAPTOP, scope="pot"), fact("sand", scope="pot"))
    memory.apply(FactsTicked(theme=LAPTOP, session_id="s", turn=1, closing=True))
    memory.link(LAPTOP, PHONE)
    assert facts_of(memory, PERSON) == [
        ("loam", "superseded"), ("clay", "active"), ("silt", "superseded"), ("sand", "active")
    ]  # fmt: skip
    pairs = "select s.content, n.content from facts s join facts n using (agent_identity) where n.id = s.superseded_by"
    assert memory.psql(f"{pairs} order by s.written_at") == [
        ("loam", "clay"),
        ("silt", "sand"),
    ]
    # The scope `pot` was closed in one of the themes and is open in the other.
    scopes = "select agent_identity, label, closed_at is null from fact_scopes order by label"
    assert memory.psql(scopes) == [(PERSON, "bed", True), (PERSON, "pot", True)]
    memory.apply(fact("peat", LAPTOP))
    memory.unlink(PHONE)
    assert facts_of(memory, PHONE) == [("loam", "superseded"), ("sand", "active")]
    assert facts_of(memory, PERSON) == [("clay", "superseded"), ("silt", "superseded"), ("peat", "active")]


def test_sessions_of_both_accounts_know_the_scope_that_both_have_written_to(memory: Memory) -> None:
    memory.apply(replace(fact("loam"), session_id="one"), replace(fact("clay", LAPTOP), session_id="two"))
    memory.link(PHONE, LAPTOP)
    memory.apply(FactsPurged(theme=PERSON), replace(fact("clay", LAPTOP), session_id="three"))
    for session in ("one", "two"):
        memory.apply(replace(fact(session, scope=""), session_id=session, target=session))
    assert memory.psql("select distinct scope from facts") == [("bed",)]


def test_an_account_that_is_separated_takes_its_rows_with_it_old_and_new(memory: Memory) -> None:
    first = turn("old")
    memory.apply(first, entry("tea"), turn("other", LAPTOP))
    memory.link(PHONE, LAPTOP)
    second = turn("new")
    memory.apply(second, Remove(theme=PHONE, home="h", target="memory", previous="tea"))
    memory.unlink(PHONE)
    assert memory.contents(PHONE) == ["old?", "old!", "new?", "new!"]
    assert memory.contents(PERSON) == ["other?", "other!"]
    assert memory.psql("select agent_identity, content from memory_history") == [(PHONE, "tea")]
    assert memory.apply(first, second) == 0
    memory.apply(turn("later"))
    assert memory.contents(PHONE)[-1] == "later!"
    assert not memory.psql(
        "select 1 from conversations where agent_identity = %s and metadata ? 'linked_account'", PHONE
    )
    memory.unlink(LAPTOP)
    assert memory.left(PERSON) == {}


def test_metadata_of_agents_stays_as_it_is(memory: Memory) -> None:
    mine = {"account": "number 7", "colour": "green"}
    memory.apply(entry("tea", metadata=mine))
    memory.link(PHONE)
    memory.apply(entry("soap", metadata=mine))
    memory.unlink(PHONE)
    assert memory.psql("select agent_identity, metadata from memory_entries") == [(PHONE, mine), (PHONE, mine)]


def test_a_batch_that_is_being_stored_is_waited_for_and_later_ones_see_the_link(memory: Memory) -> None:
    linked = threading.Event()

    def link() -> None:
        memory.link(PHONE)
        linked.set()

    with memory.database.transaction(10, 20) as connection:
        rows.apply(connection, [prepare(turn("on its way"))])
        thread = threading.Thread(target=link)
        thread.start()
        assert not linked.wait(0.5)
    thread.join(20)
    assert memory.contents(PERSON) == ["on its way?", "on its way!"]
    memory.apply(turn("after"))
    assert memory.left(PHONE) == {}


def test_rows_of_a_process_that_knows_no_links_are_moved_by_the_next_move(memory: Memory) -> None:
    memory.link(PHONE)
    old = turn("from 2.0.0")
    with memory.database.transaction(10, 20) as connection:
        # As release 2.0.0 does.
        connection.execute(QUERIES["share_sessions"], {"home": "h"})
        rows._add_turns(connection, {PHONE: [(old, prepare(old).passages)]})
    with memory.database.connection(10) as connection:
        (found,) = person_links.listed(connection, 10)
        assert (found.account, found.turns, found.entries) == (PHONE, 2, 0)
    assert memory.move(PHONE, PERSON, mark=PHONE) == 1
    assert memory.contents(PERSON) == ["from 2.0.0?", "from 2.0.0!"]


def test_the_upkeep_moves_rows_of_a_process_that_knows_no_links(memory: Memory) -> None:
    memory.link(PHONE)
    statement = "insert into conversations (agent_identity, role, content) values (%s, 'user', %s)"
    memory.psql(statement, PHONE, "from 2.0.0")
    memory.psql(statement, LAPTOP, "of somebody else")
    upkeep = Maintenance(memory.database, Settings(dsn=memory.dsn))  # type: ignore[arg-type]
    upkeep._prune_at = 0.0
    assert upkeep.step()
    assert memory.contents(PERSON) == ["from 2.0.0"]
    assert memory.contents(LAPTOP) == ["of somebody else"]


def as_2_0_0(memory: Memory, account: str, event: TurnTaken | SessionEnded | Withdrawn) -> None:
    """Apply an event as a process of release 2.0.0 does, which knows no links."""
    with memory.database.transaction(10, 20) as connection:
        messages.together(connection, out_of_order.locks([event]))
        if isinstance(event, TurnTaken):
            rows._add_turns(connection, {account: [(event, prepare(event).passages)]})
        else:
            rows._apply_one(connection, prepare(event), set(), {})


def upkeep_moves(memory: Memory) -> None:
    with memory.database.transaction(10, 20) as connection:
        person_links.move_unmoved(connection, 10)


def test_an_event_that_was_stored_under_the_person_is_not_stored_again_by_2_0_0(memory: Memory) -> None:
    memory.link(PHONE)
    said = turn("killed before the acknowledgement")
    memory.apply(said)
    as_2_0_0(memory, PHONE, said)
    assert memory.left(PHONE) == {}
    assert len(memory.contents(PERSON)) == 2


@not_on_citus.earlier_release
def test_a_replay_by_2_0_0_of_turns_that_are_the_persons_adds_only_those_that_are_missing(memory: Memory) -> None:
    memory.apply(turn("one"), turn("one"))
    memory.link(PHONE)
    memory.apply(turn("two"))
    replay = SessionEnded(
        theme=PHONE,
        home="h",
        session_id="s",
        turns=(*[("one?", "one!")] * 3, ("rewritten two?", "two!"), ("new?", "new!")),
    )
    as_2_0_0(memory, PHONE, replay)
    upkeep_moves(memory)
    assert sorted(memory.contents(PERSON)) == sorted([*["one?", "one!"] * 3, "two?", "two!", "new?", "new!"])
    assert memory.left(PHONE) == {}


def test_a_turn_that_2_0_0_stores_after_its_replay_was_moved_is_there_once(memory: Memory) -> None:
    memory.link(PHONE)
    said = turn("late")
    as_2_0_0(memory, PHONE, SessionEnded(theme=PHONE, home="h", session_id="s", turns=(("late?", "late!"),)))
    upkeep_moves(memory)
    as_2_0_0(memory, PHONE, said)
    upkeep_moves(memory)
    assert memory.contents(PERSON) == ["late?", "late!"]


@not_on_citus.earlier_release
def test_a_turn_of_the_person_that_2_0_0_withdraws_is_withdrawn_by_the_next_move(memory: Memory) -> None:
    memory.apply(turn("kept"), turn("taken back"))
    memory.link(PHONE)
    as_2_0_0(
        memory,
        PHONE,
        Withdrawn(theme=PHONE, home="h", session_id="s", turns=(("taken back?", "taken back!"),), standing=(0,)),
    )
    upkeep_moves(memory)
    assert memory.contents(PERSON) == ["kept?", "kept!"]


@pytest.mark.parametrize(
    ("account", "person"),
    [(ROOM, PERSON), (PERSON, "dm-person-00000000000000bb"), (PHONE, LAPTOP), (PHONE, ROOM), (PHONE, "ops")],
)
def test_the_database_refuses_a_link_of_a_room_or_to_anything_but_a_person(
    memory: Memory, account: str, person: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        memory.psql("insert into memory_person_links values (%s, %s)", account, person)


def test_the_rows_of_an_account_are_counted_with_the_time_of_the_newest(memory: Memory) -> None:
    memory.apply(turn("one", at=START), entry("tea", at=START + timedelta(days=1)))
    with memory.database.connection(10) as connection:
        assert person_links.held(connection, LAPTOP) == person_links.Holding(LAPTOP, 0, 0, 0, None)
        found = person_links.held(connection, PHONE)
    assert (found.entries, found.turns, found.at) == (1, 2, START + timedelta(days=1))


def test_all_themes_of_a_person_are_found_from_any_of_them(memory: Memory) -> None:
    memory.link(PHONE, LAPTOP)
    with memory.database.connection(10) as connection:
        for theme in (PHONE, LAPTOP, PERSON):
            found = person_links.themes_of(connection, theme)
            assert found[0] == theme
            assert set(found) == {PHONE, LAPTOP, PERSON}
        assert person_links.themes_of(connection, "ops") == ("ops",)
        renames.rename(connection, "old", "new")
        assert person_links.themes_of(connection, "old") == ("old", "new")
        assert person_links.themes_of(connection, "new") == ("new", "old")
        assert person_links.themes_of(connection, "") == ("",)


def test_a_link_that_waited_for_another_one_is_noticed(memory: Memory) -> None:
    third = "dm-signal-0123456789abcdef"
    memory.link(third)
    with memory.database.transaction(10, 20) as connection:
        assert person_links.count(connection) == 1
        memory.link(LAPTOP)
        with memory.database.connection(10) as reading:
            version, _ = person_links.changed(reading, "") or ("", {})
        memory.unlink(third)
        person_links.link(connection, PHONE, PERSON)
    with memory.database.connection(10) as reading:
        found = person_links.changed(reading, version)
    assert found is not None
    assert set(found[1]) == {PHONE, LAPTOP}


def test_what_two_accounts_asked_to_remember_stays_with_the_first(memory: Memory) -> None:
    memory.link(PHONE, LAPTOP)
    for account in (PHONE, LAPTOP):
        kept = Add(
            theme=account, target="memory", content="tea", metadata={"origin": "remember", "session_id": account}
        )
        memory.apply(kept)
    ((metadata,),) = memory.psql("select metadata from memory_entries")
    assert metadata == {"origin": "remember", "session_id": LAPTOP, "linked_account": PHONE}
    memory.unlink(PHONE)
    assert (memory.contents(PHONE), memory.contents(PERSON)) == (["tea"], [])
