"""Facts: what is current, what is history, and when a scope closes, in whatever order events come."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loopback import vector

from hermes_memory_pgvector.model import FACT_KINDS, Event, FactKind, FactsPurged, FactsTicked, FactWritten
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import facts, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Connection, Database
from hermes_memory_pgvector.store.facts import PRESSURE, Fact, Pressure
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import QUERIES

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NOTATION: dict[str, FactKind] = {"C": "C", "D": "D", "V": "V", "?": "?", "✓": "done", "~": "obs"}


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Memory:
    """A database and what tests ask of it. Events happen a second after each other unless they say when."""

    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn = dsn
        self.database = Database(Settings(dsn=dsn), folder)  # type: ignore[arg-type]
        self.seconds = 0
        self.pressure = PRESSURE

    def fact(self, notation: str, scope: str = "", **more: Any) -> FactWritten:
        head, _, content = notation.partition("]: ")
        more.setdefault("at", self._next())
        kind = NOTATION[head[0]]
        return FactWritten(**{"theme": "ops", "session_id": "s", "scope": scope, **more}, kind=kind, target=head[2:],
                           content=content)  # fmt: skip

    def write(self, notation: str, scope: str = "", **more: Any) -> FactWritten:
        fact = self.fact(notation, scope, **more)
        self.apply(fact)
        return fact

    def tick(self, turn: int, **more: Any) -> None:
        more.setdefault("at", self._next())
        self.apply(FactsTicked(**{"theme": "ops", "session_id": "s", **more}, turn=turn))

    def purge(self, **more: Any) -> None:
        more.setdefault("at", self._next())
        self.apply(FactsPurged(theme="ops", **more))

    def _next(self) -> datetime:
        self.seconds += 1
        return at(self.seconds)

    def apply(self, *events: Event, embedded: bool = False) -> int:
        """Apply events in one transaction, as the writer does; returns how many were new."""
        prepared = list(map(prepare, events))
        for passage in (passage for event in prepared for passage in event.passages):
            passage.vector = vector(passage.content) if embedded else None
        with self.database.transaction(10, 20) as connection:
            return rows.apply(connection, prepared, self.pressure)

    def psql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def facts(self, *statuses: facts.Status, theme: str = "ops", scope: str | None = None) -> list[Fact]:
        with self.database.connection(10) as connection:
            found = facts.listed(connection, theme, scope, statuses or ("active", "cold"), 1000)
        return sorted(found, key=lambda fact: (fact.written_at, fact.id))

    def texts(self, *statuses: facts.Status, theme: str = "ops") -> list[str]:
        return list(map(notation, self.facts(*statuses, theme=theme)))

    def hot(self, limit: int = 100) -> list[str]:
        with self.database.connection(10) as connection:
            return list(map(notation, facts.current(connection, "ops", limit).hot))

    def open(self, theme: str = "ops") -> list[str]:
        with self.database.connection(10) as connection:
            return [scope.label for scope in facts.current(connection, theme, 100).scopes]


def notation(fact: Fact) -> str:
    (sign,) = (sign for sign, kind in NOTATION.items() if kind == fact.kind)
    return f"{sign}[{fact.target}]: {fact.content}"


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    opened = Memory(database, tmp_path)
    yield opened
    opened.database.close()


# --- what is current


@pytest.mark.each_version
def test_a_new_fact_of_the_same_kind_target_and_scope_supersedes_the_old_one(memory: Memory) -> None:
    memory.write("D[auth]: sessions")
    memory.write("D[auth]: tokens")
    memory.write("C[auth]: sessions for a day")
    memory.write("D[auth]: cookies", "web")
    memory.write("D[login]: sessions")
    assert memory.texts() == [
        "D[auth]: tokens",
        "C[auth]: sessions for a day",
        "D[auth]: cookies",
        "D[login]: sessions",
    ]
    (old,) = memory.facts("superseded")
    (new,) = (fact for fact in memory.facts() if notation(fact) == "D[auth]: tokens")
    assert (old.content, old.superseded_by, old.changed_at) == ("sessions", new.id, new.written_at)
    assert memory.hot() == ["D[login]: sessions", "D[auth]: cookies", "C[auth]: sessions for a day", "D[auth]: tokens"]


def test_an_exact_repeat_adds_nothing_and_counts_as_written_then(memory: Memory) -> None:
    memory.write("V[port]: 5432")
    repeat = memory.write("V[port]: 5432", session_id="t")
    (fact,) = memory.facts("active", "cold", "superseded", "archived")
    assert (fact.written_at, fact.session_id) == (repeat.at, "t")
    with memory.database.connection(10) as connection:
        assert facts.of_event(connection, "ops", repeat.id) == fact
        assert facts.of_event(connection, "ops", "0" * 32) is None


def test_an_event_that_comes_again_changes_nothing(memory: Memory) -> None:
    first, second = memory.fact("V[port]: 1"), memory.fact("V[port]: 2")
    assert memory.apply(first, second) == 2
    assert memory.apply(first) == memory.apply(second, first) == 0
    assert memory.texts() == ["V[port]: 2"]
    assert memory.texts("superseded") == ["V[port]: 1"]


@pytest.mark.each_version
def test_a_fact_that_comes_hours_late_goes_to_history_and_displaces_nothing(memory: Memory) -> None:
    memory.write("D[auth]: tokens", at=at(7200))
    late = memory.write("D[auth]: sessions", at=at(0))
    assert memory.texts() == memory.hot() == ["D[auth]: tokens"]
    (old,) = memory.facts("superseded")
    assert (old.content, old.written_at) == ("sessions", late.at)
    assert old.superseded_by == memory.facts()[0].id


def test_a_late_repeat_of_the_current_fact_adds_nothing(memory: Memory) -> None:
    memory.write("V[port]: 5432", at=at(10))
    memory.write("V[port]: 5432", at=at(5))
    (fact,) = memory.facts("active", "cold", "superseded")
    assert fact.written_at == at(10)


def test_what_is_written_in_the_same_microsecond_is_ordered_by_the_ids_of_the_events(memory: Memory) -> None:
    low, high = memory.fact("V[a]: low", id="0" * 31 + "1", at=at(1)), memory.fact("V[a]: high", id="f" * 32, at=at(1))
    memory.apply(high, low)
    assert memory.texts() == ["V[a]: high"]


def test_obsolete_supersedes_every_current_fact_of_its_target_and_scope(memory: Memory) -> None:
    for text in ("C[api]: v1 only", "D[api]: REST", "✓[api]: drawn"):
        memory.write(text)
    memory.write("V[db]: pg")
    memory.write("D[api]: gRPC", "web", session_id="t")
    memory.write("~[api]: replaced by events")
    assert memory.texts() == ["V[db]: pg", "D[api]: gRPC", "~[api]: replaced by events"]
    assert memory.texts("superseded") == ["C[api]: v1 only", "D[api]: REST", "✓[api]: drawn"]
    memory.write("D[api]: late", at=at(2.5))
    assert memory.texts() == ["V[db]: pg", "D[api]: gRPC", "~[api]: replaced by events"]
    memory.write("D[api]: events")
    assert "D[api]: events" in memory.hot()


def test_a_repeated_obsolete_supersedes_what_was_written_since(memory: Memory) -> None:
    memory.write("~[api]: gone")
    memory.write("D[api]: REST")
    memory.write("~[api]: gone")
    assert memory.texts() == ["~[api]: gone"]
    assert memory.texts("superseded") == ["D[api]: REST"]


writes = st.lists(
    st.tuples(
        st.sampled_from(FACT_KINDS),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["x", "y"]),
        st.sampled_from(["1", "2"]),
    ),
    min_size=1,
    max_size=12,
)


def current_of(events: Sequence[FactWritten]) -> set[tuple[str, str, str, str, str]]:
    """The current facts by definition: the newest of each key, unless its target was made obsolete later.

    Those that were written before the last `done` of their scope are cold.
    """
    newest: dict[tuple[str, str, str], FactWritten] = {}
    closed = {event.scope: event.at for event in sorted(events, key=lambda event: event.at) if event.kind == "done"}
    for event in sorted(events, key=lambda event: (event.at, event.id)):
        newest[event.kind, event.target, event.scope] = event
        if event.kind == "obs":
            newest = {
                key: held for key, held in newest.items() if key[1:] != (event.target, event.scope) or held is event
            }
    return {
        (*key, event.content, "cold" if event.scope in closed and event.at <= closed[event.scope] else "active")
        for key, event in newest.items()
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(writes, st.randoms(use_true_random=False))
def test_the_same_facts_are_current_in_whatever_order_and_batches_they_come(
    memory: Memory, written: Sequence[tuple[FactKind, str, str, str]], chance: random.Random
) -> None:
    memory.psql("truncate facts, fact_scopes cascade")
    events = [
        FactWritten(theme="ops", session_id="s", at=at(n), kind=kind, target=target, scope=scope, content=content)
        for n, (kind, target, scope, content) in enumerate(written)
    ]
    shuffled = chance.sample(events, len(events))
    while shuffled:
        size = chance.randint(1, len(shuffled))
        memory.apply(*shuffled[:size])
        del shuffled[:size]
    found = {(fact.kind, fact.target, fact.scope, fact.content, fact.status) for fact in memory.facts()}
    assert found == current_of(events)
    last = {event.scope: event.kind for event in events}
    assert set(memory.open()) == {scope for scope, kind in last.items() if kind != "done"}
    stored = memory.psql("select distinct kind, target, scope, content from facts")
    assert set(stored) == set(written)


def test_a_clock_that_is_ahead_holds_back_no_facts_and_closes_no_scopes(memory: Memory) -> None:
    ahead = datetime.now(UTC) + timedelta(days=400)
    memory.write("V[port]: 1", "api", at=ahead)
    memory.write("V[port]: 2", "api", at=ahead)
    memory.write("V[port]: 3", "api", at=datetime.now(UTC))
    memory.apply(FactsTicked(theme="ops", session_id="t", turn=1, at=ahead))
    assert (memory.hot(), memory.open()) == (["V[port]: 3"], ["api"])
    assert memory.texts("superseded") == ["V[port]: 1", "V[port]: 2"]
    memory.tick(1, closing=True, at=ahead)
    memory.write("V[port]: 4", "api", at=datetime.now(UTC))
    assert (memory.hot(), memory.open()) == (["V[port]: 4"], ["api"])


def test_a_purge_by_a_clock_that_is_ahead_leaves_what_is_young(memory: Memory) -> None:
    memory.write("V[port]: 1", at=datetime.now(UTC))
    memory.write("V[port]: 2", at=datetime.now(UTC))
    memory.purge(older_than_days=30, at=datetime.now(UTC) + timedelta(days=400))
    assert memory.texts("superseded") == ["V[port]: 1"]


# --- scopes


def test_a_fact_without_a_scope_gets_the_scope_that_its_session_wrote_to_last(memory: Memory) -> None:
    memory.write("V[a]: 1")
    memory.write("V[b]: 1", "roof")
    memory.write("V[c]: 1")
    memory.write("V[d]: 1", session_id="other")
    memory.write("V[e]: 1", "cellar")
    memory.write("V[f]: 1")
    assert [(fact.target, fact.scope) for fact in memory.facts()] == [
        ("a", ""), ("b", "roof"), ("c", "roof"), ("d", ""), ("e", "cellar"), ("f", "cellar"),
    ]  # fmt: skip
    assert memory.open() == ["cellar", "roof"]


@pytest.mark.on_citus
def test_a_late_fact_without_a_scope_goes_to_the_scope_that_its_session_had_then(memory: Memory) -> None:
    memory.write("V[a]: 1", "roof", at=at(2))
    memory.write("V[b]: 1", "cellar", at=at(6))
    memory.write("V[c]: 1", at=at(4))
    memory.write("V[d]: 1", at=at(1))
    assert [(fact.target, fact.scope) for fact in memory.facts()] == [
        ("d", ""), ("a", "roof"), ("c", "roof"), ("b", "cellar"),
    ]  # fmt: skip
    memory.tick(1, closing=True, at=at(5))
    assert (memory.open(), memory.texts("cold")) == (["cellar"], ["V[a]: 1", "V[c]: 1"])


def test_two_sessions_of_one_scope_both_go_on_in_it(memory: Memory) -> None:
    memory.write("V[a]: 1", "roof", session_id="one")
    memory.write("V[b]: 1", "roof", session_id="two")
    memory.write("V[c]: 1", session_id="one")
    assert {fact.scope for fact in memory.facts()} == {"roof"}


@pytest.mark.on_citus
@pytest.mark.parametrize("other", ["repeats", "supersedes and purges"])
def test_a_session_knows_its_scope_when_another_one_has_changed_its_facts(memory: Memory, other: str) -> None:
    memory.write("V[a]: 1", "roof", session_id="one")
    memory.write("V[b]: 1", "cellar", session_id="one")
    memory.write("V[b]: 1" if other == "repeats" else "V[b]: 2", "cellar", session_id="two")
    memory.purge()
    memory.write("V[c]: 1", session_id="one")
    assert [(fact.target, fact.scope) for fact in memory.facts()][-1] == ("c", "cellar")
    memory.write("V[c]: 1", "cellar", session_id="two")
    memory.tick(1, session_id="one", closing=True)
    assert memory.open() == ["roof"]


def test_a_scope_notes_a_limited_number_of_sessions_with_the_last_one(memory: Memory) -> None:
    for number in range(100):
        memory.write("V[a]: 1", "roof", session_id=f"session {number}")
    (sessions,) = (row[0] for row in memory.psql("select metadata -> 'sessions' from fact_scopes"))
    assert "session 99" in sessions
    assert len(json.dumps(sessions)) < 2200


@pytest.mark.on_citus
def test_what_a_scope_notes_of_its_sessions_is_not_taken_on_trust(memory: Memory) -> None:
    for number, noted in enumerate(("5", "[]", '"soon"', '{"s": "soon", "t": []}')):
        label = f"roof {number}"
        memory.psql(
            "insert into fact_scopes (agent_identity, label, metadata) values ('ops', %s, %s::jsonb)",
            label, f'{{"sessions": {noted}}}',
        )  # fmt: skip
        memory.write("V[a]: 1", label)
        memory.write("V[b]: 1")
        assert [fact.scope for fact in memory.facts()][-2:] == [label, label]


def test_done_closes_the_scope_and_its_facts_become_cold(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    memory.write("V[port]: 1")
    memory.write("✓[auth]: live")
    memory.write("V[beside]: 1", session_id="t")
    assert memory.open() == []
    assert memory.texts("cold") == ["D[auth]: tokens", "V[port]: 1", "✓[auth]: live"]
    assert memory.hot() == memory.texts("active") == ["V[beside]: 1"]


def test_a_fact_without_a_scope_goes_on_in_the_closed_scope_of_its_session_and_opens_it(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    memory.tick(1, closing=True)
    assert memory.open() == []
    memory.write("V[port]: 1")
    assert (memory.open(), memory.hot()) == (["auth"], ["V[port]: 1"])


def test_a_fact_without_a_scope_and_without_a_session_gets_no_scope(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", session_id="")
    memory.write("V[port]: 1", session_id="")
    assert [fact.scope for fact in memory.facts()] == ["auth", ""]


def test_a_write_opens_a_closed_scope_again(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    memory.write("✓[auth]: live")
    memory.write("D[auth]: cookies", "auth")
    assert memory.open() == ["auth"]
    assert memory.hot() == ["D[auth]: cookies"]
    assert memory.texts("superseded") == ["D[auth]: tokens"]
    memory.write("✓[auth]: live")
    assert memory.open() == []


def test_what_was_written_before_a_scope_was_closed_does_not_open_it(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", at=at(1))
    memory.write("✓[auth]: live", "auth", at=at(9))
    memory.write("V[port]: 1", "auth", at=at(5))
    assert (memory.open(), memory.hot()) == ([], [])
    assert "V[port]: 1" in memory.texts("cold")


def test_a_late_done_cools_what_is_older_and_leaves_a_scope_open_that_was_written_to_since(
    memory: Memory,
) -> None:
    memory.write("D[auth]: tokens", "auth", at=at(9))
    memory.write("✓[auth]: live", "auth", at=at(5))
    memory.write("V[port]: 1", "auth", at=at(4))
    assert memory.open() == ["auth"]
    assert memory.texts("active") == ["D[auth]: tokens"]
    assert memory.texts("cold") == ["V[port]: 1", "✓[auth]: live"]


def test_six_turns_of_silence_close_a_scope_and_a_write_begins_the_count_anew(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    for turn in range(1, 6):
        memory.tick(turn)
    memory.write("V[port]: 1")
    for turn in range(6, 11):
        memory.tick(turn)
    assert memory.open() == ["auth"]
    memory.tick(11)
    assert (memory.open(), memory.hot()) == ([], [])
    assert memory.texts("cold") == ["D[auth]: tokens", "V[port]: 1"]


def test_turns_are_counted_by_their_numbers_each_once(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    for turn in (1, 1, 1, 1, 1, 1, 1, 5):
        memory.tick(turn)
    assert memory.open() == ["auth"]
    memory.tick(6)
    assert memory.open() == []


def test_turn_numbers_may_begin_anew(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    for turn in (8, 9, 1, 2, 3):
        memory.tick(turn)
    assert memory.open() == ["auth"]
    memory.tick(4)
    assert memory.open() == []


def test_three_turns_in_another_scope_close_the_one_before(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth")
    memory.write("D[roof]: slate", "roof")
    for turn in (1, 2):
        memory.tick(turn)
    assert memory.open() == ["roof", "auth"]
    memory.tick(3)
    assert memory.open() == ["roof"]


def test_the_turns_of_a_session_close_no_scope_of_another_one(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", session_id="other")
    for turn in range(1, 20):
        memory.tick(turn, closing=True)
    assert memory.open() == ["auth"]


def test_a_closing_signal_closes_the_scope_that_the_session_works_in(memory: Memory) -> None:
    memory.write("D[roof]: slate", "roof")
    memory.write("D[auth]: tokens", "auth")
    memory.tick(1, closing=True)
    assert memory.open() == ["roof"]
    assert memory.hot() == ["D[roof]: slate"]


def test_a_tick_that_comes_late_closes_nothing_that_was_written_since(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", at=at(9))
    memory.tick(50, at=at(5), closing=True)
    memory.tick(51, at=at(6))
    assert memory.open() == ["auth"]


@pytest.mark.on_citus
def test_a_closing_signal_that_comes_late_cools_what_was_written_before_it(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", at=at(1))
    memory.write("V[port]: 1", "auth", at=at(9))
    memory.tick(50, at=at(5), closing=True)
    memory.write("V[host]: a", "auth", at=at(3))
    memory.write("V[user]: b", "auth", at=at(7))
    assert memory.open() == ["auth"]
    assert (memory.texts("cold"), memory.texts("active")) == (
        ["D[auth]: tokens", "V[host]: a"],
        ["V[user]: b", "V[port]: 1"],
    )


def test_a_scope_whose_session_is_not_heard_of_for_days_closes(memory: Memory) -> None:
    memory.write("D[auth]: tokens", "auth", session_id="gone")
    memory.write("V[a]: 1", at=at(3 * 86_400))
    assert memory.open() == ["auth"]
    memory.write("V[b]: 1", at=at(3 * 86_400 + 5))
    assert memory.open() == []


# --- pressure


def gauge(connection: Connection) -> int:
    return facts.gauge(connection, "ops")


def test_no_fact_is_refused_and_the_active_ones_keep_to_their_room(memory: Memory) -> None:
    memory.pressure = Pressure(chars_max=2000)
    for n in range(60):
        memory.write(f"V[number.{n}]: {'x' * 80} {n}")
        with memory.database.connection(10) as connection:
            assert facts.gauge(connection, "ops") < 0.95 * 2000
    current = memory.facts()
    assert len(current) == 60
    active = [fact.target for fact in current if fact.status == "active"]
    assert active == [f"number.{n}" for n in range(60 - len(active), 60)]
    assert len(active) > 10


def test_the_gauge_counts_the_characters_of_the_notation(memory: Memory) -> None:
    memory.write("V[port]: 5432")
    memory.write("C[日本]: 東京")
    with memory.database.connection(10) as connection:
        assert gauge(connection) == len("V[port]: 5432") + len("C[日本]: 東京")


def test_a_fact_that_was_used_stays_active_longer(memory: Memory) -> None:
    memory.pressure = Pressure(chars_max=2000)
    first = memory.write(f"V[first]: {'x' * 80}")
    with memory.database.connection(10) as connection:
        fact = facts.of_event(connection, "ops", first.id)
        assert fact is not None
        facts.used(connection, "ops", [fact.id])
    for n in range(40):
        memory.write(f"V[number.{n}]: {'x' * 80} {n}")
    assert memory.texts("active")[0].startswith("V[first]")
    (used,) = (fact for fact in memory.facts() if fact.target == "first")
    assert used.uses == 1


def test_pressure_merges_what_says_the_same_of_one_target_and_scope(memory: Memory) -> None:
    memory.write("C[auth]: Tokens only")
    memory.write("D[auth]: tokens only")
    memory.write("D[auth]: tokens only", "web")
    assert len(memory.texts("active")) == 3
    memory.pressure = Pressure(chars_max=70)
    memory.write("V[a]: 1", "web")
    assert memory.texts("active") == ["D[auth]: tokens only", "D[auth]: tokens only", "V[a]: 1"]
    assert memory.texts("superseded") == ["C[auth]: Tokens only"]


# --- purge


def test_a_purge_deletes_superseded_and_archived_facts_only(memory: Memory) -> None:
    memory.write("V[a]: 1", "x")
    memory.write("V[a]: 2", "x")
    memory.write("V[b]: 1", "y")
    memory.write("V[b]: 2", "y")
    memory.write("V[c]: 1", "z")
    memory.psql("update facts set status = 'archived' where target = 'c'")
    memory.purge(scope="x")
    assert memory.texts("superseded", "archived") == ["V[b]: 1", "V[c]: 1"]
    memory.purge(older_than_days=1)
    assert memory.texts("superseded", "archived") == ["V[b]: 1", "V[c]: 1"]
    memory.purge(older_than_days=1, at=at(86_400 + 60))
    assert memory.texts("superseded", "archived") == []
    assert memory.texts() == ["V[a]: 2", "V[b]: 2"]


def test_a_purge_that_comes_late_leaves_what_was_superseded_since(memory: Memory) -> None:
    memory.write("V[a]: 1", at=at(1))
    memory.write("V[a]: 2", at=at(9))
    memory.purge(at=at(5))
    assert memory.texts("superseded") == ["V[a]: 1"]


def test_past_facts_and_closed_scopes_without_a_fact_are_deleted_after_their_time(memory: Memory) -> None:
    for scope in ("old", "kept", "recent"):
        memory.write("V[a]: 1", scope)
        memory.write("V[a]: 2", scope)
        memory.write("✓[a]: 2", scope)
    memory.psql("delete from facts where scope in ('old', 'recent') and status = 'cold'")
    memory.psql("update facts set changed_at = now() - interval '31 days' where scope = 'old'")
    memory.psql("update facts set changed_at = now() - interval '29 days' where scope <> 'old'")
    memory.psql("update fact_scopes set closed_at = now() - interval '31 days' where label <> 'recent'")
    memory.psql("update fact_scopes set closed_at = now() - interval '29 days' where label = 'recent'")
    with memory.database.connection(10) as connection:
        assert upkeep.prune_facts(connection, 30) == 1
    assert [(fact.scope, fact.content) for fact in memory.facts("superseded")] == [("kept", "1"), ("recent", "1")]
    assert memory.texts() == ["V[a]: 2", "✓[a]: 2"]
    assert memory.psql("select label from fact_scopes order by 1") == [("kept",), ("recent",)]


# --- many at once, other themes


def test_facts_of_another_theme_are_others(memory: Memory) -> None:
    memory.write("V[a]: 1", "x")
    memory.write("V[a]: 2", "x", theme="billing")
    memory.write("✓[a]: 2", "x", theme="billing")
    memory.purge()
    assert memory.texts() == memory.hot() == ["V[a]: 1"]
    assert (memory.open(), memory.open("billing")) == (["x"], [])


def test_threads_that_write_the_same_keys_lose_nothing_and_leave_the_newest(memory: Memory) -> None:
    events = [
        [memory.fact(f"V[key.{key}]: {n}-{worker}", session_id=str(worker), at=at(n * 8 + worker))
         for n in range(10) for key in range(3)]
        for worker in range(8)
    ]  # fmt: skip

    def work(own: Sequence[FactWritten], database: Database) -> None:
        for start in range(0, len(own), 4):
            with database.transaction(30, 30) as connection:
                rows.apply(connection, list(map(prepare, own[start : start + 4])))

    databases = [Database(Settings(dsn=memory.dsn), Path("/unused")) for _ in events]  # type: ignore[arg-type]
    threads = [threading.Thread(target=work, args=pair) for pair in zip(events, databases, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for database in databases:
        database.close()
    assert memory.texts() == ["V[key.0]: 9-7", "V[key.1]: 9-7", "V[key.2]: 9-7"]
    assert memory.psql("select count(*), count(distinct event_id), count(distinct content) from facts") == [
        (240, 240, 80)
    ]


def test_a_second_current_fact_of_a_key_is_refused_by_the_table(memory: Memory) -> None:
    memory.write("V[a]: 1", "x")
    with pytest.raises(psycopg.errors.UniqueViolation):
        memory.psql(
            "insert into facts (agent_identity, kind, target, scope, content) values ('ops', 'V', 'a', 'x', '2')"
        )


# --- cost


def fill(memory: Memory, cold: int) -> None:
    """40 active facts in two open scopes, and cold and past ones of a thousand closed scopes."""
    values = "select 'ops', 'V', 'target.' || n, %s, repeat('x', 80) || n, %s, now() - make_interval(secs => n)"
    columns = "agent_identity, kind, target, scope, content, status, written_at"
    for scope, status, count in (("'open.' || n % 2", "'active'", 40), ("'closed.' || n % 1000", "'cold'", cold)):
        memory.psql(f"insert into facts ({columns}) {values % (scope, status)} from generate_series(1, {count}) as n")
    memory.psql(
        "insert into fact_scopes (agent_identity, label, closed_at) select agent_identity, scope, "
        "case when scope like 'closed%' then now() end from facts group by 1, 2"
    )
    memory.psql("vacuum analyze facts, fact_scopes")


def pages(memory: Memory, name: str, **values: Any) -> int:
    """The pages that a statement reads, from memory or disk."""
    event = {**asdict(memory.fact("V[target.7]: y", "open.0")), "id": "0" * 32, "metadata": "{}", "seconds": "0"}
    parameters = {**event, "limit": 100, "days": 3, "room": 8500, **values}
    with psycopg.connect(memory.dsn) as connection:
        statement = f"explain (analyze, buffers, format json) {QUERIES[name]}".encode()
        row = connection.execute(statement, parameters).fetchone() or ()
        connection.rollback()
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


READS = ("hot_facts", "gauge_facts", "list_fact_scopes", "merge_facts", "cool_facts_of_closed_scopes",
         "cool_unused_facts", "idle_fact_scopes", "newest_fact", "supersede_facts", "scope_of_session",
         "open_fact_scope")  # fmt: skip


def test_what_is_injected_and_written_costs_the_same_beside_a_hundred_thousand_cold_facts(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    costs = []
    for cold in (100, 100_000):
        memory = Memory(make_database(dimensions=384), tmp_path)
        fill(memory, cold)
        assert len(memory.hot()) == 40
        costs.append({name: pages(memory, name) for name in READS})
        memory.database.close()
    few, many = costs
    print(few, many)
    # A tree of an index is up to two levels higher.
    assert {name: (few[name], many[name]) for name in READS if many[name] > 2 * few[name] + 4} == {}
    injected = READS[:3]
    assert sum(many[name] for name in injected) <= 2 * sum(few[name] for name in injected)
