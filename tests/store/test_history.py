"""What was replaced, removed or edited stays in the history, whoever did it, and can be brought back."""

from __future__ import annotations

import random
import re
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from commandline import Outcome, hermes_pgvector
from psycopg.conninfo import make_conninfo

from hermes_memory_pgvector.errors import BadEvent
from hermes_memory_pgvector.model import Add, Event, Remove, Replace, TurnTaken
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import entries, history, rows, statistics, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.queries import QUERIES
from hermes_memory_pgvector.store.schema import migrations, verification
from hermes_memory_pgvector.write.maintenance import Maintenance

pytestmark = pytest.mark.on_citus

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
FILES = migrations.migration_files()
# Tables that came with later files than the first three.
LATER = (
    "memory_entry_pieces",
    "conversation_pieces",
    "memory_history",
    "memory_words",
    "memory_withdrawals",
    "memory_person_links",
    "memory_erasures",
    "memory_pruned_turns",
    "memory_renames",
    "facts",
    "fact_pieces",
    "fact_scopes",
)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Memory:
    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.folder = dsn, folder
        self.database = Database(Settings(dsn=dsn), folder)  # type: ignore[arg-type]

    def apply(self, *events: Event) -> None:
        """Apply events in one transaction, as the writer does."""
        with self.database.transaction(10, 20) as connection:
            rows.apply(connection, list(map(prepare, events)))

    def psql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def contents(self, theme: str = "ops") -> list[str]:
        found = self.psql("select content from memory_entries where agent_identity = %s order by id", theme)
        return [content for (content,) in found]

    def past(self, columns: str = "how, content") -> list[Any]:
        return self.psql(f"select {columns} from memory_history order by id")

    def command(self, *arguments: str) -> Outcome:
        """Run a command line for a home that uses this database."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HERMES_PGVECTOR_DSN", self.dsn)
            return hermes_pgvector("--home", str(self.folder), *arguments)

    def undo(self, *arguments: str, place: int = 0) -> Outcome:
        """Undo the change at this place of the history."""
        return self.command("undo", str(self.past("id")[place][0]), *arguments)


@pytest.fixture
def memory(database: str, tmp_path: Path) -> Iterator[Memory]:
    memory = Memory(database, tmp_path)
    yield memory
    memory.database.close()


def add(content: str, seconds: float = 0, **more: Any) -> Add:
    return Add(**{"theme": "ops", "home": "A", "at": at(seconds), "target": "memory", "content": content, **more})


def remove(previous: str, seconds: float = 10, **more: Any) -> Remove:
    return Remove(**{"theme": "ops", "home": "A", "at": at(seconds), "target": "memory", "previous": previous, **more})


def swap(previous: str, content: str, seconds: float = 10, **more: Any) -> Replace:
    return Replace(**{"theme": "ops", "home": "A", "at": at(seconds), "target": "memory", "content": content,
                      "previous": previous, **more})  # fmt: skip


# --- what is kept


def test_the_history_keeps_a_removed_entry_whole_and_who_removed_it(memory: Memory) -> None:
    memory.apply(add("green tea", 3, target="user", metadata={"by": "tool"}))
    ((entry,),) = memory.psql("select id from memory_entries")
    memory.apply(remove("green tea", 20, target="user", theme="billing", session_id="s7"))
    columns = (
        "agent_identity, entry_id, home, target, content, created_at, updated_at, metadata, gone_at, how, session_id"
    )
    known = ("ops", entry, "A", "user", "green tea", at(3), at(3), {"by": "tool"})
    assert memory.past(f"{columns}, replaced_by") == [(*known, at(20), "removed", "s7", None)]


def test_the_history_of_a_replaced_entry_names_the_new_content(memory: Memory) -> None:
    memory.apply(add("tea at four", 1), swap("tea at four", "tea at five", 10, session_id="s1"))
    memory.apply(swap("tea at five", "tea at six", 20, session_id="s2"))
    assert memory.contents() == ["tea at six"]
    assert memory.past("content, replaced_by, how, session_id, created_at, updated_at, gone_at") == [
        ("tea at four", "tea at five", "replaced", "s1", at(1), at(1), at(10)),
        ("tea at five", "tea at six", "replaced", "s2", at(1), at(10), at(20)),
    ]


def test_the_rows_of_one_transaction_get_their_own_details(memory: Memory) -> None:
    memory.apply(add("a"), add("b"), add("c"))
    memory.apply(remove("a", 10, session_id="one"), swap("b", "d", 11, session_id="two"), remove("c", 12))
    assert memory.past("content, how, session_id, gone_at") == [
        ("a", "removed", "one", at(10)),
        ("b", "replaced", "two", at(11)),
        ("c", "removed", "", at(12)),
    ]


def test_the_history_keeps_changes_made_by_psql(memory: Memory) -> None:
    memory.apply(add("a"), add("b"))
    memory.psql("delete from memory_entries where content = 'a'")
    memory.psql("update memory_entries set content = 'B' where content = 'b'")
    assert memory.past("agent_identity, content, how, replaced_by, session_id") == [
        ("ops", "a", "removed", None, ""),
        ("ops", "b", "edited", "B", ""),
    ]
    ((recent,),) = memory.psql("select bool_and(now() - gone_at < interval '1 minute') from memory_history")
    assert recent


@pytest.mark.not_on_citus("Citus refuses to change the theme of a row")
def test_the_history_keeps_moves_made_by_psql(memory: Memory) -> None:
    memory.apply(add("a"))
    memory.psql("update memory_entries set agent_identity = 'billing'")
    assert memory.past("agent_identity, content, how, replaced_by, session_id") == [("ops", "a", "moved", None, "")]


def test_the_history_keeps_changes_by_psql_with_any_search_path(memory: Memory) -> None:
    memory.apply(add("a"))
    memory.psql("set search_path = ''; delete from public.memory_entries")
    assert memory.past() == [("removed", "a")]


def test_changes_of_vectors_words_and_metadata_make_no_history(memory: Memory) -> None:
    memory.psql("insert into memory_entries (target, content) values ('user', 'tea')")
    with memory.database.transaction(5, 5) as connection:
        assert upkeep.add_words(connection, 10) == 1
        found = upkeep.unembedded(connection, 10)
        assert upkeep.embed(connection, found, [[[0.5] * 384]]) == 1
    memory.psql("update memory_entries set metadata = '{\"a\": 1}', content = content")
    assert memory.past() == []


def test_an_entry_that_a_hook_claims_for_its_theme_has_moved(memory: Memory) -> None:
    memory.apply(add("tea", from_file=True, metadata={"origin": "file"}))
    memory.apply(add("tea", 5, theme="billing", session_id="s"))
    assert memory.contents("billing") == ["tea"]
    assert memory.past("agent_identity, content, how, session_id") == [("ops", "tea", "moved", "s")]


def test_a_transaction_that_fails_leaves_no_history(memory: Memory) -> None:
    memory.apply(add("tea"))
    bad = TurnTaken(theme="ops", user="no \0 in Postgres", assistant="")
    with pytest.raises(BadEvent):
        memory.apply(remove("tea"), bad)
    assert (memory.contents(), memory.past()) == (["tea"], [])


def test_a_remove_that_comes_twice_is_in_the_history_once(memory: Memory) -> None:
    event = remove("tea")
    memory.apply(add("tea"), event)
    memory.apply(event)
    memory.apply(remove("tea", 11))
    assert memory.past() == [("removed", "tea")]


@pytest.mark.parametrize("time", ["infinity", "-infinity", "0044-03-15 BC", "20000-01-01"])
def test_entries_of_times_that_python_does_not_have_are_listed_and_changed(memory: Memory, time: str) -> None:
    for content in "abc":
        memory.psql(
            "insert into memory_entries (agent_identity, home, target, content, created_at, updated_at) "
            "values ('ops', '', 'memory', %s, %s, %s)", content, time, time,
        )  # fmt: skip
    memory.apply(
        Remove(theme="ops", home="A", target="memory", previous="a"),
        Replace(theme="ops", home="A", target="memory", content="B", previous="b"),
    )
    with memory.database.connection(5) as connection:
        assert [entry.content for entry in entries.newest(connection, "ops", 5)] == ["B", "c"]
        assert entries.count_by_target(connection, "ops")["memory"][0] == 2
        assert [(theme.theme, theme.entries) for theme in statistics.themes(connection, 5)] == [("ops", 2)]
        found = entries.entry_with(connection, "ops", "memory", "c")
        assert found is not None
        assert entries.delete(connection, "ops", found.id, session_id="s", at=datetime.now(UTC)) == found
        assert {past.content for past in history.past_entries(connection, 5)} == {"a", "b", "c"}


def test_old_history_is_pruned(memory: Memory) -> None:
    memory.apply(add("a"), add("b"), remove("a"), remove("b"))
    memory.psql("update memory_history set noted_at = now() - interval '29 days'")
    memory.psql("update memory_history set gone_at = now() - interval '29 days' where content = 'a'")
    memory.psql("update memory_history set gone_at = now() - interval '31 days' where content = 'b'")
    with memory.database.connection(5) as connection:
        assert upkeep.prune_history(connection, 30) == 1
    assert memory.past() == [("removed", "a")]


def test_only_the_process_with_the_lease_prunes_it(memory: Memory) -> None:
    memory.apply(add("a"), remove("a"))
    memory.psql("update memory_history set noted_at = now() - interval '25 hours'")
    settings = Settings(dsn=memory.dsn, history_days=1)  # type: ignore[arg-type]
    first, second = (Maintenance(memory.database, settings) for _ in range(2))
    first._prune_at = second._prune_at = 0.0
    first.step()
    assert memory.past() == []
    memory.apply(add("b"), remove("b"))
    memory.psql("update memory_history set noted_at = now() - interval '25 hours'")
    second.step()
    assert memory.past() == [("removed", "b")], "another process does it for an hour"


@pytest.mark.parametrize(
    "statement",
    [
        "add_entry",
        "find_entry",
        "delete_entry_of_other_themes",
        "delete_entry_of_home",
        "entries_containing",
        "entry_to_replace",
        "entry_with_id",
        "prune_expired",
    ],
)
@not_on_citus.plans
def test_a_change_does_not_read_the_whole_table(memory: Memory, statement: str) -> None:
    memory.psql(
        "insert into memory_entries (agent_identity, home, target, content) "
        "select 'theme ' || n % 100, 'home ' || n % 50, 'memory', 'text ' || n from generate_series(1, 20000) as n"
    )
    memory.psql("analyze memory_entries")
    values = {
        "theme": "theme 7", "home": "home 7", "target": "memory", "content": "text 7", "at": at(1), "from_file": True,
        "embedding": None, "words": "", "created_at": at(1), "metadata": "{}", "old_text": "ext 7", "surviving": [""],
        "id": 7, "tags": ["x"], "expires_at": None, "replaces": None, "themes": None,
    }  # fmt: skip
    with psycopg.connect(memory.dsn, prepare_threshold=None) as connection:
        plan = connection.execute("explain " + QUERIES[statement], values).fetchall()  # type: ignore[operator]
    assert "Seq Scan on memory_entries" not in str(plan), plan


# --- roles


@pytest.fixture(scope="module")
def role(server: Any) -> Iterator[str]:
    """A login role without rights; it can only be dropped after the databases of the tests, hence the wider scope."""
    name = f"hermes_history_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'".encode())
    yield name
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"DROP ROLE {name}".encode())


def test_a_role_that_could_write_before_the_upgrade_can_write_after_it(
    make_database: Callable[..., str], role: str, tmp_path: Path
) -> None:
    dsn = make_database(dimensions=None)
    for file in FILES[:3]:
        (tmp_path / f"{file.name}.sql").write_text(file.text, encoding="utf-8")
    migrations.migrate(dsn, dimensions=384, runtime_role=None, folder=tmp_path)
    tables = ", ".join(table for table in verification.TABLES if table not in LATER)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"GRANT SELECT ON hermes_pgvector_migrations TO {role}".encode())
        connection.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {tables} TO {role}".encode())
    assert migrations.migrate(dsn) == [file.name for file in FILES[3:]]
    memory = Memory(make_conninfo(dsn, user=role, password="for-tests"), tmp_path)
    memory.apply(add("a"), swap("a", "b"), remove("b", 20, session_id="s"))
    assert memory.past("content, how, session_id") == [("a", "replaced", ""), ("b", "removed", "s")]
    assert memory.undo().code == 0
    with psycopg.connect(dsn) as owner:
        owner.execute("UPDATE memory_history SET noted_at = now() - interval '25 hours'")
    with memory.database.connection(5) as connection:
        assert upkeep.prune_history(connection, 1) == 2
    memory.database.close()


# --- the commands


def test_the_history_is_listed_newest_first_and_narrowed(memory: Memory) -> None:
    now = datetime.now(UTC)
    memory.apply(add("old"), add("user tea", target="user"), add("bill", theme="billing"))
    for content, hours, more in (
        ("old", 50, {}),
        ("user tea", 5, {"target": "user"}),
        ("bill", 1, {"theme": "billing"}),
    ):
        memory.apply(remove(content, **{"at": now - timedelta(hours=hours), "session_id": "s", **more}))  # type: ignore[arg-type]

    def listed(*arguments: str) -> list[str]:
        outcome = memory.command("history", "--json", *arguments)
        assert outcome.code == 0
        return [entry["content"] for entry in outcome.document["history"]]

    assert listed() == ["bill", "user tea", "old"]
    assert listed("--limit", "2") == ["bill", "user tea"]
    assert listed("--theme", "Billing") == ["bill"]
    assert listed("--target", "user") == ["user tea"]
    assert listed("--since", "6h") == ["bill", "user tea"]
    assert listed("--since", f"{now - timedelta(hours=2):%Y-%m-%dT%H:%M+00:00}") == ["bill"]
    assert listed("--since", "3d") == ["bill", "user tea", "old"]
    shown = memory.command("history").out
    assert "user tea" in shown
    assert "session s" in shown
    assert memory.command("history", "--theme", "nobody").out == "no entry was replaced, removed or edited\n"


def test_a_shown_time_is_accepted_as_an_argument(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        memory.apply(add("old"), remove("old", at=datetime.now(UTC)))
        shown = re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d", memory.command("history").out)
        assert shown
        assert "old" in memory.command("history", "--since", shown[0]).out
    time.tzset()


@pytest.mark.parametrize("since", ["yesterday", "12", "-3d", "2026-13-01", ""])
def test_an_invalid_time_is_a_usage_error(memory: Memory, since: str) -> None:
    assert memory.command("history", "--since", since).code == 2


@pytest.mark.parametrize("command", ["undo", "edit"])
def test_a_number_that_no_row_can_have_is_a_usage_error(memory: Memory, command: str) -> None:
    outcome = memory.command(command, str(1 << 63))
    assert outcome.code == 2
    assert "must be from 1 to" in outcome.err


def test_undo_brings_an_entry_back_once(memory: Memory) -> None:
    memory.apply(add("green tea", 3, metadata={"by": "tool"}), remove("green tea"))
    past = memory.past("id")
    outcome = memory.undo("--json")
    assert (outcome.code, memory.contents()) == (0, ["green tea"])
    (row,) = memory.psql(
        "select id, home, created_at, metadata, search @@ 'tea', embedding is null from memory_entries"
    )
    assert row == (outcome.document["restored"], "A", at(3), {"by": "tool", "origin": "undo"}, True, True)
    again = memory.undo()
    assert again.code == 1
    assert f"has this entry already, as row {row[0]}" in again.err
    assert memory.contents() == ["green tea"]
    assert memory.past("id") == past, "the history stays as it is"


def test_undo_of_a_replace_reports_that_both_entries_exist(memory: Memory) -> None:
    memory.apply(add("tea at four", 3), swap("tea at four", "tea at five"))
    outcome = memory.undo()
    assert sorted(memory.contents()) == ["tea at five", "tea at four"]
    assert "the entry that replaced it stays" in outcome.err
    assert "MEMORY.md and USER.md are unchanged" in outcome.err


def test_undo_of_an_edit_by_psql_and_of_one_already_undone_by_hand(memory: Memory) -> None:
    memory.apply(add("a"))
    memory.psql("update memory_entries set content = 'b'")
    memory.psql("update memory_entries set content = 'a'")
    assert memory.undo().code == 1
    assert memory.undo(place=1).code == 0
    assert sorted(memory.contents()) == ["a", "b"]


def test_undo_of_an_unknown_id_is_a_usage_error(memory: Memory) -> None:
    outcome = memory.command("undo", "77")
    assert outcome.code == 2
    assert "no entry 77" in outcome.err
    assert "hermes-pgvector history" in outcome.err


def test_a_restored_entry_is_not_found_by_a_part_of_its_text(memory: Memory) -> None:
    memory.apply(add("green tea"), remove("green tea"))
    assert memory.undo().code == 0
    memory.apply(remove("", 20, old_text="tea"))
    assert memory.contents() == ["green tea"]
    memory.apply(remove("green tea", at=datetime.now(UTC)))
    assert memory.contents() == [], "its whole text means it"


def test_an_event_replayed_after_an_undo_changes_nothing(memory: Memory) -> None:
    first, second = add("tea"), remove("tea")
    memory.apply(first, second, TurnTaken(theme="ops", user="hello", assistant=""))
    assert memory.undo().code == 0
    memory.apply(first, second)
    assert memory.contents() == ["tea"]


# --- of a home with several themes


def test_changes_of_a_home_from_several_themes_leave_the_same_entries_in_whatever_order_they_come(
    memory: Memory,
) -> None:
    wrong = {}
    for number, order in enumerate(permutations(range(5))):
        tea, coffee = f"tea {number}.", f"coffee {number}."
        changes = [
            add(tea, 1, theme="dev"),
            remove(tea, 2, theme="dev"),
            add(tea, 3, theme="ops"),
            swap(tea, coffee, 4, theme="dev"),
            add(tea, 5, theme="dev"),
        ]
        memory.apply(*(changes[place] for place in order))
        found = memory.psql("select content from memory_entries where content in (%s, %s)", tea, coffee)
        if sorted(found) != [(coffee,), (tea,)]:
            wrong[order] = found
    assert wrong == {}


def test_removals_of_a_home_that_come_latest_first_leave_no_entry(memory: Memory) -> None:
    wrong = {}
    for number, themes in enumerate(permutations(("dev", "ops", "web"))):
        for order in permutations(range(3)):
            tea = f"tea {number} {order}."
            adds = [add(tea, 1 + 2 * place, theme=theme) for place, theme in enumerate(("dev", "ops", "web"))]
            removals = [remove(tea, 2 + 2 * place, theme=theme) for place, theme in enumerate(themes)]
            memory.apply(*adds, *(removals[place] for place in order))
            if found := memory.psql("select agent_identity from memory_entries where content = %s", tea):
                wrong[themes, order] = found
    assert wrong == {}


def test_a_late_removal_takes_no_row_for_one_that_a_tool_deleted(memory: Memory) -> None:
    memory.apply(add("tea", 1, theme="dev"), add("tea", 5))
    ((number,),) = memory.psql("select id from memory_entries where agent_identity = 'dev'")
    with memory.database.transaction(10, 20) as connection:
        assert entries.delete(connection, "dev", number, session_id="s", at=at(6))
    memory.apply(remove("tea", 4), remove("tea", 2, theme="dev"), remove("tea", 7, theme="dev", home=""))
    assert memory.contents() == ["tea"], "ops has saved it itself"


def of_file(content: str, seconds: float, **more: Any) -> Add:
    """An entry that was found in the file, in the home's own theme."""
    return add(content, seconds, from_file=True, metadata={"origin": "file"}, **more)


def test_a_line_that_was_written_again_is_kept_in_whatever_order_its_changes_come(memory: Memory) -> None:
    changes = {"add": add, "remove": remove, "file": of_file}
    seconds, themes = {"add": 1, "remove": 2, "file": 3}, {"add": "dev", "remove": "dev", "file": "ops"}
    left = {}
    for order in permutations(changes):
        tea = f"tea {order}."
        memory.apply(*(changes[name](tea, seconds[name], theme=themes[name]) for name in order))
        left[order] = len(memory.psql("select content from memory_entries where content = %s", tea))
    assert set(left.values()) == {1}, left


def test_a_line_that_the_file_has_had_again_is_stored_once(memory: Memory) -> None:
    memory.apply(of_file("tea", 3), add("tea", 1, theme="dev"))
    assert (memory.contents("dev"), memory.contents()) == ([], ["tea"])


def test_a_line_of_the_file_renews_one_row_so_that_late_removals_take_the_others(memory: Memory) -> None:
    memory.apply(add("tea", 1, theme="dev"), add("tea", 3, theme="web"), of_file("tea", 5))
    memory.apply(remove("tea", 4, theme="web"), remove("tea", 2, theme="dev"))
    assert memory.psql("select content, updated_at from memory_entries") == [("tea", at(5))]


def test_an_older_line_of_the_file_keeps_no_replaced_entry_out_of_its_theme(memory: Memory) -> None:
    memory.apply(of_file("tea", 1), add("coffee", 2, theme="dev"), swap("coffee", "tea", 3, theme="dev"))
    assert memory.contents("dev") == ["tea"]


@pytest.mark.parametrize(
    "changes",
    [
        (("dev", 2, False), ("ops", 7, True), ("ops", 3, True), ("ops", 6, False), "dev 4"),
        (("ops", 2, False), ("dev", 10, False), ("ops", 3, True), ("ops", 11, True), "dev 6"),
    ],
)
def test_an_entry_is_not_stored_beside_a_newer_one_of_the_home(memory: Memory, changes: tuple[Any, ...]) -> None:
    *adds, removal = changes
    for theme, seconds, by_file in adds:
        memory.apply(of_file("tea", seconds) if by_file else add("tea", seconds, theme=theme))
    theme, _, seconds = removal.partition(" ")
    memory.apply(remove("tea", float(seconds), theme=theme))
    assert memory.psql("select count(*) from memory_entries") == [(1,)]


def changes_of_a_file(chance: random.Random, texts: list[str]) -> tuple[list[Event], set[str]]:
    """Changes of a file in their order, reported by hooks or found in the file, and its lines in the end."""
    file: set[str] = set()
    past: set[str] = set()
    events: list[Event] = []
    for seconds in range(0, 2 * chance.randint(3, 6), 2):
        theme, found = chance.choice(("dev", "ops", "web")), chance.random() < 0.3
        text, other = chance.sample(texts, 2)
        before = set(file)
        if text not in file:
            events.append(of_file(text, seconds) if found else add(text, seconds, theme=theme))
            file.add(text)
        elif other not in file and chance.random() < 0.4:
            events.append(swap(text, other, seconds, theme=theme))
            file ^= {text, other}
        else:
            events.append(remove(text, seconds, from_file=True) if found else remove(text, seconds, theme=theme))
            file.discard(text)
        if chance.random() < 0.3:
            # A pass over the file was before the hook. Of a line that was there earlier, too, two rows may be left.
            events += [remove(line, seconds - 0.5, from_file=True) for line in sorted(before - file)]
            events += [of_file(line, seconds - 0.4) for line in sorted(file - before - past)]
        past |= file
        if chance.random() < 0.3:
            # A pass over the file tells of it, too.
            events.append(of_file(text, seconds + 1) if text in file else remove(text, seconds + 1, from_file=True))
    return events, file


@pytest.mark.parametrize("histories", [50, pytest.param(1500, marks=[pytest.mark.slow, pytest.mark.timeout(1500)])])
def test_changes_of_a_file_leave_its_lines_in_whatever_order_they_are_stored(memory: Memory, histories: int) -> None:
    chance = random.Random(11)
    wrong = []
    for number in range(histories):
        texts = [f"tea {number}.", f"coffee {number}."]
        events, file = changes_of_a_file(chance, texts)
        chance.shuffle(events)
        memory.apply(*events)
        rows = memory.psql("select content from memory_entries where content = any (%s)", texts)
        if sorted(content for (content,) in rows) != sorted(file):
            wrong.append((events, file, rows))
    assert wrong == []
