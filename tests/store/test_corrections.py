"""Entries that take the place of others, expire and have tags."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from waiting import wait_for

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.hosts.provenance import source_of
from hermes_memory_pgvector.model import Add, Attributed, Event, Remove, Replace, Scope, Update, now
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import entries, history, retrieval, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare

DATA = Path(__file__).parent.parent / "data"


class Memory:
    def __init__(self, database: Database) -> None:
        self.database = database

    def apply(self, *events: Event) -> None:
        with self.database.transaction(10, 20) as connection:
            rows.apply(connection, list(map(prepare, events)))

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def live(self, theme: str = "ops") -> dict[str, tuple[str, ...]]:
        """The contents that a recall may see, with their tags."""
        with self.database.connection(5) as connection:
            return {entry.content: tuple(entry.tags) for entry in entries.newest(connection, theme, 1000)}

    def id(self, content: str, theme: str = "ops") -> int:
        ((number,),) = self.sql(
            "select id from memory_entries where agent_identity = %s and content = %s", theme, content
        )
        return int(number)

    def past(self, theme: str = "ops") -> list[history.Past]:
        """The history, the oldest change first."""
        with self.database.connection(5) as connection:
            return sorted(history.past_entries(connection, 1000, theme=theme), key=lambda past: past.id)

    def undo(self, past: history.Past) -> int | None:
        with self.database.transaction(10, 20) as connection:
            return history.take_back(connection, past)[0]


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    opened = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    yield Memory(opened)
    opened.close()


def add(content: str, **more: Any) -> Add:
    """As the tool `remember` adds it."""
    return Add(**{"theme": "ops", "target": "memory", "content": content, "metadata": {"origin": "remember"}, **more})


def update(number: int, content: str, **more: Any) -> Update:
    return Update(
        **{"theme": "ops", "entry_id": number, "content": content, "metadata": {"origin": "remember"}, **more}
    )


def later(**span: float) -> str:
    return (now() + timedelta(**span)).isoformat()


# --- against a model

TEXTS, TAGS = st.sampled_from("abcd"), st.none() | st.sampled_from([(), ("x",), ("x", "y")])
PLACES = st.integers(0, 30)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), PLACES, TEXTS, TAGS),
        st.tuples(st.just("update"), PLACES, TEXTS, TAGS),
        st.tuples(st.just("supersede"), PLACES, TEXTS, TAGS),
        st.tuples(st.just("forget"), PLACES, TEXTS, TAGS),
        st.tuples(st.just("undo"), PLACES, TEXTS, TAGS),
    ),
    max_size=12,
)


class Model:
    """What the memory of a theme should hold: `leads_to` has the content that each id means now, None for none."""

    def __init__(self, memory: Memory, theme: str) -> None:
        self.memory, self.theme = memory, theme
        self.live: dict[str, tuple[str, ...]] = {}
        self.leads_to: dict[int, str | None] = {}
        self.past: list[tuple[str, str]] = []

    def remember(self, text: str, tags: tuple[str, ...] | None) -> None:
        self.memory.apply(add(text, theme=self.theme, tags=tags))
        self.put(text, tags, self.live.get(text, ()))

    def put(self, text: str, tags: tuple[str, ...] | None, kept: tuple[str, ...]) -> None:
        self.live[text] = kept if tags is None else tags
        self.leads_to[self.memory.id(text, self.theme)] = text

    def correct(self, kind: str, number: int, text: str, tags: tuple[str, ...] | None) -> None:
        old = self.leads_to[number]
        if kind == "update":
            event: Event = update(number, text, theme=self.theme, tags=tags)
        else:
            event = add(text, theme=self.theme, supersedes=number, tags=tags)
        if old is None and kind == "update":
            with pytest.raises(BadEvent, match=f"has no entry {number} any more"):
                self.memory.apply(event)
            return
        self.memory.apply(event)
        if old is None:
            self.put(text, tags, self.live.get(text, ()))
        else:
            self.replace(old, text, tags, self.live[old])

    def replace(self, old: str, text: str, tags: tuple[str, ...] | None, kept: tuple[str, ...]) -> None:
        del self.live[old]
        self.past.append((old, "replaced"))
        merged = text in self.live
        self.leads_to |= {id: None if merged else text for id, content in self.leads_to.items() if content == old}
        self.put(text, tags, self.live.get(text, kept))

    def forget(self, number: int) -> None:
        content = self.leads_to[number]
        with self.memory.database.transaction(10, 20) as connection:
            gone = entries.delete(connection, self.theme, number, session_id="", at=now())
        if gone is None:
            return
        assert gone.content == content
        del self.live[gone.content]
        self.past.append((gone.content, "removed"))
        self.leads_to |= {id: None for id, meant in self.leads_to.items() if meant == content}

    def undo(self, past: history.Past) -> None:
        successor = self.leads_to[past.entry_id] if past.how == "replaced" else None
        restored = self.memory.undo(past)
        same = sorted(self.live.get(past.content, ())) == sorted(past.tags)
        taken = past.content in self.live and (past.content != successor or same)
        assert (restored is None) == taken
        if not taken and successor is not None:
            self.replace(successor, past.content, tuple(past.tags), ())
        elif not taken:
            self.put(past.content, tuple(past.tags), ())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(CHANGES)
def test_corrections_and_undos_leave_what_a_simple_model_says(
    memory: Memory, changes: list[tuple[str, int, str, tuple[str, ...] | None]]
) -> None:
    model = Model(memory, uuid.uuid4().hex)
    for kind, place, text, tags in changes:
        ids, past = list(model.leads_to), memory.past(model.theme)
        if kind == "undo":
            if past:
                model.undo(past[place % len(past)])
        elif kind == "remember" or not ids:
            model.remember(text, tags)
        elif kind == "forget":
            model.forget(ids[place % len(ids)])
        else:
            model.correct(kind, ids[place % len(ids)], text, tags)
        assert memory.live(model.theme) == model.live
        assert [(past.content, past.how) for past in memory.past(model.theme)] == model.past


# --- corrections


def test_an_update_keeps_what_it_is_not_told_to_change(memory: Memory) -> None:
    until = later(days=14)
    first = add("port 5433", tags=("db",), expires=until, target="user", metadata={"origin": "remember", "ticket": 7})
    memory.apply(first)
    memory.apply(update(memory.id("port 5433"), "port 5440", session_id="s2"))
    ((target, created, metadata, tags, expires),) = memory.sql(
        "select target, created_at, metadata, tags, expires_at from memory_entries"
    )
    assert (target, created, metadata, tags, expires.astimezone(UTC).isoformat()) == (
        "user", first.at, {"origin": "remember", "ticket": 7}, ["db"], until
    )  # fmt: skip
    (past,) = memory.past()
    assert (past.content, past.how, past.replaced_by, past.session_id, list(past.tags)) == (
        "port 5433", "replaced", "port 5440", "s2", ["db"]
    )  # fmt: skip
    memory.apply(update(memory.id("port 5440"), "port 5440", tags=(), expires="never"))
    assert memory.sql("select tags, expires_at from memory_entries") == [(None, None)]


def test_a_correction_of_another_theme_changes_nothing_there(memory: Memory) -> None:
    memory.apply(add("secret"))
    number = memory.id("secret")
    with pytest.raises(BadEvent, match="theme billing has no entry"):
        memory.apply(update(number, "stolen", theme="billing"))
    memory.apply(add("other", theme="billing", supersedes=number))
    assert (memory.live("ops"), memory.live("billing")) == ({"secret": ()}, {"other": ()})
    assert memory.past() == []


def test_of_two_corrections_the_later_one_stays_in_whatever_order_they_are_stored(memory: Memory) -> None:
    memory.apply(add("a"))
    number, early, late = memory.id("a"), now(), now() + timedelta(seconds=1)
    memory.apply(update(number, "late", at=late))
    memory.apply(update(number, "early", at=early), add("beside", supersedes=number, at=early))
    assert set(memory.live()) == {"late", "beside"}
    assert sorted((past.content, past.replaced_by) for past in memory.past()) == [("a", "late"), ("early", "late")]


def test_a_correction_that_comes_twice_is_applied_once(memory: Memory) -> None:
    memory.apply(add("a"))
    event = update(memory.id("a"), "b")
    memory.apply(event)
    memory.apply(event)
    assert memory.live() == {"b": ()}
    assert len(memory.past()) == 1


def test_a_corrected_entry_of_a_file_is_no_longer_of_the_file(memory: Memory) -> None:
    memory.apply(Add(theme="ops", home="A", target="memory", content="port 5433"))
    memory.apply(update(memory.id("port 5433"), "port 5440"))
    memory.apply(
        Replace(theme="ops", home="A", target="memory", content="port 1", old_text="port", surviving=("port 1",))
    )
    assert set(memory.live()) == {"port 5440", "port 1"}


# --- expiry


def test_an_expired_entry_leaves_at_once_and_its_row_by_the_upkeep(memory: Memory) -> None:
    memory.apply(add("lasting"), add("over", expires=later(seconds=-1)), add("soon", expires=later(days=1)))
    assert set(memory.live()) == {"lasting", "soon"}
    with memory.database.connection(5) as connection:
        scanned = retrieval.scan(connection, "entries", Scope("ops", ("ops",)), ["over"], None, 10)
        assert entries.count_by_target(connection, "ops")["memory"][0] == len(scanned.keys) == 2
        assert entries.entry_with(connection, "ops", "memory", "over") is None
        assert entries.with_id(connection, "ops", memory.id("over")) is None
        assert upkeep.prune_expired(connection) == 1
        assert upkeep.prune_expired(connection) == 0
    (past,) = memory.past()
    assert (past.content, past.how) == ("over", "expired")
    memory.undo(past)
    assert set(memory.live()) == {"lasting", "soon", "over"}


@pytest.mark.parametrize("origin", [{"origin": "remember"}, {}])
def test_a_text_that_has_expired_can_be_stored_again(memory: Memory, origin: dict[str, str]) -> None:
    memory.apply(add("tea at four", expires=later(seconds=-1)))
    assert memory.live() == {}
    memory.apply(Add(theme="ops", home="A", target="memory", content="tea at four", metadata=origin))
    assert memory.live() == {"tea at four": ()}
    with memory.database.connection(5) as connection:
        assert upkeep.prune_expired(connection) == 0


@pytest.mark.parametrize("infinite", ["infinity", "-infinity", "20000-01-01"])
def test_an_expiry_that_python_does_not_have_can_be_read(memory: Memory, infinite: str) -> None:
    memory.apply(add("a"), add("b"))
    memory.sql("update memory_entries set expires_at = %s where content = 'a'", infinite)
    memory.apply(add("c", supersedes=memory.id("b")))
    assert set(memory.live()) == ({"c"} if infinite == "-infinity" else {"a", "c"})
    with memory.database.connection(5) as connection:
        keys = [("ops", memory.id("a"))]
        assert len(retrieval.fetch(connection, "entries", keys)) == 1
        upkeep.prune_expired(connection)
    assert len(memory.past()) == (2 if infinite == "-infinity" else 1)


# --- release 2.0.0 beside it


@not_on_citus.earlier_release
def test_statements_of_2_0_0_store_a_text_whose_row_has_expired(memory: Memory) -> None:
    statements = (DATA / "entries-2.0.0.sql").read_text(encoding="utf-8").split(";\n")
    memory.apply(add("tea at four", expires=later(seconds=-1)), add("port 5433", tags=("db",)))
    values = {
        "theme": "ops", "home": "A", "target": "memory", "content": "tea at four", "embedding": None, "words": "tea",
        "created_at": now(), "at": now(), "metadata": '{"origin": "remember"}', "from_file": False, "before": None,
        "limit": 5, "since": None, "id": None,
    }  # fmt: skip
    with psycopg.connect(memory.database.dsn, autocommit=True) as connection:
        for statement in filter(str.strip, statements):
            connection.execute(statement.encode(), values)
    assert memory.live() == {"tea at four": (), "port 5433": ("db",)}
    assert [(past.content, past.how) for past in memory.past()] == [("tea at four", "expired")]


# --- tags


def scoped(memory: Memory, *tags: str, both: bool = False, kind: Any = "entries") -> int:
    with memory.database.connection(5) as connection:
        scope = Scope("ops", ("ops",), tags=tags, all_tags=both)
        return len(retrieval.scan(connection, kind, scope, [], None, 100).keys)


def test_tags_narrow_entries_to_any_or_all_of_them(memory: Memory) -> None:
    memory.apply(add("a", tags=("x",)), add("b", tags=("x", "y")), add("c", tags=("z",)), add("d"))
    memory.apply(add("e", theme="billing", tags=("x", "y")))
    assert [scoped(memory, *tags) for tags in ((), ("x",), ("x", "z"), ("w",))] == [4, 2, 3, 0]
    assert [scoped(memory, *tags, both=True) for tags in (("x",), ("x", "y"), ("x", "z"))] == [2, 1, 0]
    assert scoped(memory, "@ops") == 4 - 1, "the index marks the theme of tagged rows; no tag can begin with @"


def test_the_index_of_tags_finds_few_of_many_rows(memory: Memory) -> None:
    memory.sql(
        "insert into memory_entries (agent_identity, target, content, tags) "
        "select 'ops', 'memory', 'text ' || n, array['common', 'tag ' || n / 10] "
        "from generate_series(1, 20000) as n"
    )
    memory.sql("analyze memory_entries")
    scope = Scope("ops", ("ops",), tags=("tag 7",))
    with memory.database.connection(5) as connection:
        assert retrieval.count(connection, "entries", scope, 100).rows == 10
        parameters = {**retrieval.parameters_of(scope), "limit": 100, "own_index": None}
        plan = connection.execute("explain " + retrieval.QUERIES["count_entries_tagged"], parameters).fetchall()  # type: ignore[operator]
    assert "memory_entries_tags" in str(plan), plan


def test_turns_have_the_tags_of_what_was_remembered_in_their_session(memory: Memory) -> None:
    memory.apply(add("port 5433", tags=("db",), metadata={"origin": "remember", "session_id": "s1"}))
    memory.sql(
        "insert into conversations (agent_identity, session_id, role, content) values "
        "('ops', 's1', 'user', 'which port?'), ('ops', 's1', 'assistant', '5433'), ('ops', 's2', 'user', 'lunch?'), "
        "('billing', 's1', 'user', 'not mine')"
    )
    assert [scoped(memory, *tags, kind="turns") for tags in ((), ("db",), ("x",))] == [3, 2, 0]
    memory.sql("update memory_entries set expires_at = now() - interval '1 second'")
    assert scoped(memory, "db", kind="turns") == 0


def test_a_row_without_them_is_as_short_as_before(memory: Memory) -> None:
    memory.apply(add("plain"))
    assert memory.sql("select tags, expires_at, replaces from memory_entries") == [(None, None, None)]


def test_an_addition_is_live_when_what_it_supersedes_had_expired_before(memory: Memory) -> None:
    memory.apply(add("old"))
    memory.sql("update memory_entries set expires_at = now() - interval '1 hour'")
    number = memory.id("old")
    memory.apply(add("new", supersedes=number))
    assert set(memory.live()) == {"new"}
    with pytest.raises(BadEvent, match="no entry"):
        memory.apply(update(number, "newer"))


def test_a_correction_that_was_said_before_the_expiry_keeps_it(memory: Memory) -> None:
    memory.apply(add("old", at=now() - timedelta(hours=2)))
    memory.sql("update memory_entries set expires_at = now() - interval '1 hour'")
    memory.apply(update(memory.id("old"), "new", at=now() - timedelta(hours=2), expires=later(days=1)))
    assert set(memory.live()) == {"new"}


@pytest.mark.parametrize("infinite", ["infinity", "29999-01-01"])
def test_an_entry_whose_expiry_python_does_not_have_can_be_corrected(memory: Memory, infinite: str) -> None:
    memory.apply(add("old", tags=("sea",)))
    memory.sql("update memory_entries set expires_at = %s", infinite)
    memory.apply(update(memory.id("old"), "new"))
    assert memory.live() == {"new": ("sea",)}


@pytest.mark.parametrize("infinite", ["infinity", "29999-01-01"])
def test_an_entry_of_a_file_whose_expiry_python_does_not_have_can_be_replaced(memory: Memory, infinite: str) -> None:
    memory.apply(Add(theme="ops", home="h", target="memory", content="old"))
    memory.sql("update memory_entries set expires_at = %s", infinite)
    memory.apply(Replace(theme="ops", home="h", target="memory", content="new", previous="old"))
    assert set(memory.live()) == {"new"}


def test_a_line_of_a_file_is_stored_again_when_its_row_has_expired(memory: Memory) -> None:
    line = {"theme": "ops", "home": "h", "target": "memory", "content": "kelp"}
    memory.apply(Add(**line))
    memory.sql("update memory_entries set expires_at = now() - interval '1 hour'")
    memory.apply(Add(**line))
    assert set(memory.live()) == {"kelp"}


def test_an_edit_of_an_entry_that_has_expired_meanwhile_is_refused(memory: Memory) -> None:
    memory.apply(add("old"))
    number = memory.id("old")
    memory.apply(update(number, "changed"))
    memory.sql("update memory_entries set expires_at = now() - interval '1 hour'")
    for seen in ("old", "changed"):
        asked = number if seen == "old" else memory.id("changed")
        with pytest.raises(BadEvent, match="no entry"), memory.database.transaction(10, 20) as connection:
            history.update_seen(connection, update(asked, "mine"), seen)


@not_on_citus.waits
def test_a_replaced_entry_keeps_the_tags_that_it_gets_meanwhile(memory: Memory) -> None:
    memory.apply(Add(theme="ops", home="h", target="memory", content="the port is 5432", tags=("net",)))
    replaced = Replace(theme="ops", home="h", target="memory", content="the port is 5433", previous="the port is 5432")
    with psycopg.connect(memory.database.dsn) as other:
        other.execute("update memory_entries set tags = array['net', 'db']")
        thread = threading.Thread(target=memory.apply, args=(replaced,))
        thread.start()
        wait_for(lambda: memory.sql("select 1 from pg_locks where not granted") != [])
    thread.join(20)
    assert memory.sql("select content, tags from memory_entries") == [("the port is 5433", ["net", "db"])]


class Saving:
    """A memory whose entries are made by saves."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def line(self, content: str, *saves: str, **more: Any) -> Add:
        return Add(theme="ops", home="h", target="memory", content=content, metadata={"saves": list(saves)}, **more)

    def kept(self, *saves: str) -> dict[str, Any]:
        return {"origin": "remember", "session_id": "s", "saves": list(saves)}

    def read(self, *saves: str) -> Attributed:
        """These saves stored what a page said."""
        return Attributed(theme="ops", home="h", saves=saves, metadata={"tools": ["web_search"]})

    def made(self) -> set[str]:
        """The entries of third parties."""
        rows = self.memory.sql("select content, metadata from memory_entries")
        return {content for content, metadata in rows if source_of("", metadata) == "third parties"}


@pytest.fixture
def saving(memory: Memory) -> Saving:
    return Saving(memory)


@pytest.mark.parametrize("late", [False, True])
def test_an_entry_of_third_parties_stays_one_when_it_is_changed(saving: Saving, late: bool) -> None:
    """`late`: the turn that read the page is handed over after the change."""
    memory, read = saving.memory, saving.read("1", "2", "3")
    memory.apply(
        saving.line("the port is 5432", "1"), add("a note", metadata=saving.kept("2")),
        add("a rumour", metadata=saving.kept("3")), add("tea", metadata=saving.kept("4")), saving.line("own", "5"),
        *([] if late else [read]),
    )  # fmt: skip
    memory.apply(
        Replace(theme="ops", home="h", target="memory", content="the port is 5433", old_text="5432"),
        update(memory.id("a note"), "a longer note"), update(memory.id("tea"), "green tea", metadata=saving.kept("6")),
        add("a fact", supersedes=memory.id("a rumour"), metadata=saving.kept("7")), saving.read("6"),
        *([read] if late else []),
    )  # fmt: skip
    assert saving.made() == {"the port is 5433", "a longer note", "a fact", "green tea"}


def test_a_page_cannot_have_an_entry_marked_that_was_there_before(saving: Saving) -> None:
    memory, theirs = saving.memory, "Backups are kept in Oslo."
    memory.apply(saving.line(theirs, "1"), add("tea", metadata={"origin": "remember"}))
    memory.apply(saving.line(theirs, "3"), *(add(text, metadata=saving.kept("3")) for text in (theirs, "tea")))
    memory.apply(update(memory.id("tea"), "tea", metadata=saving.kept("3"), tags=("x",)))
    memory.apply(add("tea", metadata=saving.kept("3"), supersedes=memory.id("tea")))
    memory.apply(add("junk", metadata=saving.kept("4")))
    memory.apply(update(memory.id("junk"), theirs, metadata=saving.kept("3")))
    same = {"content": "a line", "previous": "a line", "metadata": {"saves": ["3"]}}
    memory.apply(saving.line("a line"), Replace(theme="ops", home="h", target="memory", **same), saving.read("3"))
    assert set(memory.live()) == {theirs, "tea", "a line"}
    assert saving.made() == set()


def test_what_is_remembered_again_without_a_page_is_of_third_parties_no_more(saving: Saving) -> None:
    memory = saving.memory
    memory.apply(add("tea", metadata=saving.kept("1")), saving.read("1"))
    memory.apply(add("tea", metadata=saving.kept("2")), saving.read("2"))
    assert saving.made() == {"tea"}
    memory.apply(add("tea", metadata=saving.kept("3")))
    assert saving.made() == set()


def test_an_entry_keeps_its_mark_when_its_replacement_is_stored_late(saving: Saving) -> None:
    memory, start = saving.memory, now() - timedelta(minutes=1)
    common = {"theme": "ops", "home": "h", "target": "memory"}
    at = [start + timedelta(seconds=n) for n in range(5)]
    memory.apply(saving.line("old", "1", at=at[0]), replace(saving.line("old", "2", at=at[2]), theme="team"))
    memory.apply(saving.read("1"), Remove(**common, previous="old", at=at[3]))
    # It takes the row that the removal took, which takes the next one.
    memory.apply(Replace(**common, content="new", previous="old", at=at[1]))
    assert saving.made() == set(memory.live()) == {"new"}
    assert memory.live("team") == {}


@pytest.mark.parametrize("tools", ["hammer", {"web": 1}, ["hammer"]])
def test_metadata_of_an_earlier_release_are_no_mark(saving: Saving, tools: Any) -> None:
    saving.memory.apply(add("tea", metadata={"origin": "remember", "tools": tools}))
    assert saving.made() == set()
