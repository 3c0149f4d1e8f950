"""The same memory on one Postgres and on a Citus cluster: the same events, rows and hits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import citus
import not_on_citus
import psycopg
import pytest
from commandline import hermes_pgvector
from loopback import Endpoint
from two_memories import BEGIN, ROWS, WORDS, Events, Two, equal, rows, started
from waiting import wait_for

from hermes_memory_pgvector.model import (
    Add,
    Delegated,
    Event,
    FactsPurged,
    FactsTicked,
    FactWritten,
    RecallRequest,
    Remove,
    Replace,
    Scope,
    SessionEnded,
    TurnTaken,
    Update,
    Withdrawn,
)
from hermes_memory_pgvector.store import history, moves, person_links, retrieval
from hermes_memory_pgvector.store.schema.distribution import distribute
from hermes_memory_pgvector.store.schema.migrations import migrate, migration_files
from hermes_memory_pgvector.text.masks import masked

pytestmark = not_on_citus.two_servers

DATA = Path(__file__).parents[1] / "data"
# Of release 2.0.0: its last migration, and the rows that it wrote, in vectors of 8 numbers.
SCHEMA_OF_2_0_0, ROWS_OF_2_0_0, DIMENSIONS_OF_2_0_0 = 8, DATA / "database-2.0.0.sql", 8
SECRET = "the token is ghp_0123456789abcdefghijABCDEFGHIJ012345"


@pytest.fixture(
    params=[
        pytest.param((8, 2), id="8-themes"),
        pytest.param((50, 4), id="50-themes", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]),
    ]
)
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    """How many themes and homes a test has."""
    chosen: tuple[int, int] = request.param
    return chosen


@pytest.fixture(scope="module")
def coordinator() -> Iterator[str]:
    try:
        with citus.cluster() as found:
            yield found
    except citus.NoCluster as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def agents(coordinator: str) -> Iterator[str]:
    """A role of agents."""
    role = f"agent_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(coordinator, autocommit=True) as connection:
        connection.execute(f"create role {role} login".encode())
        yield role
        connection.execute(f"drop role {role}".encode())


@pytest.fixture(scope="module")
def cluster(coordinator: str, agents: str) -> Iterator[str]:
    """A distributed database."""
    with citus.database(coordinator) as dsn:
        migrate(dsn, dimensions=384, runtime_role=agents)
        distribute(dsn, lambda _line: None)
        yield dsn


@pytest.fixture
def start(tmp_path: Path, database: str, cluster: str, agents: str, endpoint: Endpoint) -> Iterator[Callable[..., Two]]:
    """Start a memory on both; what it holds is deleted afterwards."""
    with started(tmp_path, database, cluster, agents, endpoint) as make:
        yield make
    with psycopg.connect(cluster, autocommit=True) as connection:
        for table in ROWS:
            connection.execute(f"truncate {table} cascade".encode())


def test_a_cluster_has_the_same_rows_and_hits_as_one_postgres(start: Callable[..., Two], size: tuple[int, int]) -> None:
    two, events = start(), Events.of(23, size)
    said, kept = events.turns(), events.entries()
    two.accept(*said, *kept)
    two.accept(*said[:5], *kept[:5])  # nothing is stored twice
    counts = {table: count for table, count in two.same_rows().items() if count}
    themes, _ = size
    assert counts == {"memory_entries": 8 * themes, "conversations": 16 * themes, "memory_events": 16 * themes}
    assert two.recalls(events) > 25 * themes


def test_large_themes_are_searched_by_the_indexes_of_their_nodes(
    start: Callable[..., Two], monkeypatch: pytest.MonkeyPatch
) -> None:
    two, events = start(word_candidates_max=100, exact_rows_max=100), Events.of(5, (3, 2))
    two.accept(*events.turns(count=80))
    two.count_words(100)

    def found() -> int:
        return sum(two.recall("turns", events.words(3), Scope(theme, (theme,))) for theme in [*events.themes] * 4)

    assert found() > 80
    # Of several large themes, the cluster reads as many candidates of each as one Postgres does of all.
    for themes in (tuple(events.themes), None):
        for _ in range(5):
            plain, cluster = two.words(events.words(3), Scope(events.themes[0], themes))
            assert cluster > 0.9 * plain
    plain, cluster = two.command(monkeypatch, "tune", "--rows-min", "100", "--apply", "--json")
    assert plain.count('"step": "build"') == cluster.count('"step": "build"') == 3
    assert found() > 80


def test_a_recall_over_very_many_themes_says_where_it_did_not_look(
    start: Callable[..., Two], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "THEMES_MAX", 5)
    two, events = start(), Events.of(3, (7, 2))
    two.accept(*events.turns(count=2))
    request = RecallRequest(query="copper bridge", scope=Scope(events.themes[0], None), limit=10, budget_s=20)
    plain, cluster = (runtime.recall("turns", request) for runtime in two.runtimes)
    assert plain.degraded == ()
    assert cluster.degraded == ("words were looked for in the 5 largest themes only: name the themes",)
    assert len(cluster.hits) > 0


def test_changes_of_a_memory_leave_the_same_rows(start: Callable[..., Two], size: tuple[int, int]) -> None:
    two, events = start(), Events.of(42, size)
    said, kept = events.turns(), events.entries()
    two.accept(*said, *kept)
    changes, late = changes_of(events, said, kept)
    two.accept(*changes)
    two.accept(*late)
    for entry in kept[6::24]:
        common = {"theme": entry.theme, "session_id": "later", "at": BEGIN + timedelta(days=2)}
        two.correct(entry, Update(**common, id=events.id(), entry_id=0, content=f"{entry.theme} corrected"))
    for entry in kept[7::24]:
        common = {"theme": entry.theme, "session_id": "later", "at": BEGIN + timedelta(days=2)}
        two.correct(entry, Add(**common, id=events.id(), target="memory", content=f"{entry.theme} superseded"))
    for entry in kept[1::80]:
        two.forget(entry)
    counts, (themes, _) = two.same_rows(), size
    assert counts["memory_history"] >= 7 * themes
    assert counts["memory_agent_edges"] == counts["memory_agents"] == themes
    assert counts["memory_withdrawals"] >= themes
    assert two.recalls(events) > 25 * themes


def changes_of(events: Events, said: list[TurnTaken], kept: list[Add]) -> tuple[list[Event], list[Event]]:
    """Changes of all kinds in each theme, and turns that come after the events that name them."""
    times = iter(BEGIN + timedelta(days=1, seconds=2 * place) for place in range(1_000_000))

    def common(theme: str, home: str = events.homes[0]) -> dict[str, Any]:
        return {"id": events.id(), "theme": theme, "home": home, "at": next(times), "session_id": "later"}

    changes: list[Event] = []
    late: list[Event] = []
    for place, theme in enumerate(events.themes):
        mine = [entry for entry in kept if entry.theme == theme]
        other, third = events.themes[place - 1], events.themes[place - 2]
        turn = next(turn for turn in said if turn.theme == theme and turn.session_id == f"{theme}-0")
        scoped = {"session_id": f"{theme}-0"}
        changes += [
            Replace(**common(theme), target="memory", content=f"{theme} replaced", previous=mine[0].content),
            Replace(**common(theme, mine[2].home), target="memory", content=f"{theme} by a part",
                    old_text=mine[2].content[:14]),
            Remove(**common(theme, events.homes[1]), target="memory", previous=mine[3].content),
            # Removed in another theme of the home: found by the home.
            Remove(**common(other, mine[4].home), target="memory", previous=mine[4].content),
            Add(**common(theme, mine[4].home) | {"at": BEGIN}, target="memory", content=mine[4].content),  # older
            # Replaced in another theme, it stays in its own, where the next theme finds it.
            Add(**common(theme), target="memory", content=f"{theme} moves"),
            Replace(**common(other), target="memory", previous=f"{theme} moves", content=f"{theme} stays"),
            Remove(**common(third), target="memory", previous=f"{theme} stays"),
            Add(**common(theme), target="memory", content=f"{theme} of a file", from_file=True,
                metadata={"origin": "file"}),
            Add(**common(other), target="memory", content=f"{theme} of a file"),  # it moves to that theme
            Add(**common(theme), target="memory", content=f"{theme} once", from_file=True, metadata={"origin": "file"}),
            Add(**common(other), target="memory", content=f"{theme} once", from_file=True, metadata={"origin": "file"}),
            Add(**common(theme), target="user", content=f"{theme} twice"),
            Add(**common(other), target="user", content=f"{theme} twice"),
            Remove(**common(theme), target="user", previous=f"{theme} twice", from_file=True),
            Remove(**common(theme), target="user", previous="never there", from_file=True),
            Add(**common(theme), target="user", content=f"{theme}: {SECRET}"),
            Replace(**common(other), target="user", previous=f"{theme}: {SECRET}",
                    content=masked(f"{theme}: {SECRET}")),
            Add(**common(theme), target="memory", content=f"{theme} kept"),
            Add(**common(theme, ""), target="memory", content=f"{theme} kept", metadata={"origin": "remember"},
                tags=("blue",), expires="2099-01-01T00:00:00+00:00"),
            Remove(**common(theme), target="memory", previous=f"{theme} kept", from_file=True),
            Withdrawn(**common(theme) | scoped, turns=((turn.user, turn.assistant),), standing=(0,)),
            Delegated(**common(theme), task=f"task of {theme}", result="done", child_session_id=f"child-{theme}"),
            SessionEnded(**common(theme) | {"session_id": f"{theme}-1"}, turns=(("was it stored", f"no, {theme}"),)),
            FactWritten(**common(theme) | scoped, kind="D", target="db", content="postgres"),
            FactWritten(**common(theme) | scoped, kind="D", target="db", content="postgres on a cluster"),
            FactWritten(**common(theme) | scoped, kind="V", target="port", content="5432", scope="set-up"),
            FactWritten(**common(theme) | scoped, kind="V", target="port", content="5433", scope="set-up"),
            FactsTicked(**common(theme) | scoped, turn=1),
            FactsTicked(**common(theme) | scoped, turn=2, closing=True),
            FactsPurged(**common(theme) | scoped, scope="set-up"),
        ]  # fmt: skip
        late.append(
            TurnTaken(
                **common(theme) | {"at": BEGIN, "session_id": f"{theme}-1"},
                user="was it stored", assistant=f"no, {theme}",
            )
        )  # fmt: skip
    return changes, late


def test_rows_without_vectors_and_words_are_healed(
    start: Callable[..., Two], endpoint: Endpoint, size: tuple[int, int]
) -> None:
    two, events = start(heal_interval_s=1), Events.of(7, size)
    theme, long = events.themes[0], " ".join(f"{word} {place}" for place, word in enumerate(WORDS * 60))
    endpoint.status = 503
    two.accept(
        *events.turns(),
        *events.entries(),
        TurnTaken(theme=theme, user="long?", assistant=long, at=BEGIN, id=events.id()),
        Add(theme=theme, target="memory", content=long[:7000], at=BEGIN, id=events.id()),
        FactWritten(theme=theme, kind="D", target="db", content=long[:300], at=BEGIN, id=events.id()),
    )
    for dsn in two.dsns:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("update conversations set search = null where role = 'user'")
            connection.execute("update memory_entries set search = null where target = 'user'")
    endpoint.status = 200

    for runtime in two.runtimes:
        runtime.writer.wake()
    wait_for(lambda: lacking(two) == 0, 120)
    counts = two.same_rows()
    assert counts["conversation_pieces"] > 0
    assert counts["memory_entry_pieces"] > 0
    assert two.recalls(events) > 25 * len(events.themes)


def test_a_database_of_release_2_0_0_is_upgraded_to_the_same(
    tmp_path: Path, make_database: Callable[..., str], coordinator: str, agents: str, endpoint: Endpoint,
    size: tuple[int, int],
) -> None:  # fmt: skip
    events, (themes, _) = Events.of(19, size), size
    said, kept = events.turns(), events.entries()
    endpoint.dimensions = DIMENSIONS_OF_2_0_0
    for file in migration_files()[:SCHEMA_OF_2_0_0]:
        (tmp_path / f"{file.name}.sql").write_text(file.text, encoding="utf-8")
    with citus.database(coordinator) as cluster:
        plain = make_database(dimensions=None)
        for dsn, kind in ((plain, ()), (cluster, ("--citus", "--runtime-role", agents))):
            migrate(dsn, dimensions=DIMENSIONS_OF_2_0_0, folder=tmp_path)
            fill_as_2_0_0(dsn, said, kept)
            assert hermes_pgvector("--home", str(tmp_path), "migrate", "--dsn", dsn, *kind).code == 0
        with started(tmp_path, plain, cluster, agents, endpoint) as start:
            two = start(heal_interval_s=1)
            wait_for(lambda: lacking(two) == 0, 120)
            counts = two.same_rows()
            assert (counts["memory_entries"], counts["conversations"]) == (8 * themes + 2, 16 * themes + 6)
            changes, late = changes_of(events, said, kept)
            two.accept(*changes, *late)
            assert two.same_rows()["memory_history"] >= 5 * themes
            assert two.recalls(events) > 25 * themes


def fill_as_2_0_0(dsn: str, said: list[TurnTaken], kept: list[Add]) -> None:
    """Store rows as release 2.0.0 did: those of its dump, and others without vectors and words."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set session_replication_role = replica")
        connection.execute("truncate hermes_pgvector_migrations, hermes_pgvector_settings")
        connection.execute(ROWS_OF_2_0_0.read_text().encode())
        for turn in said:
            for role, content in (("user", turn.user), ("assistant", turn.assistant)):
                connection.execute(
                    "insert into conversations (agent_identity, session_id, role, content, ts)"
                    " values (%s, %s, %s, %s, %s)",
                    [turn.theme, turn.session_id, role, content, turn.at + timedelta(microseconds=role == "assistant")],
                )
        for entry in kept:
            connection.execute(
                "insert into memory_entries (agent_identity, home, target, content, created_at, updated_at)"
                " values (%s, %s, %s, %s, %s, %s)",
                [entry.theme, entry.home, entry.target, entry.content, entry.at, entry.at],
            )


def lacking(two: Two) -> int:
    """How many rows of both have no vector or no words."""
    found = 0
    for dsn in two.dsns:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for table in ("conversations", "memory_entries", "facts"):
                query = f"select count(*) from {table} where embedding is null or search is null"
                found += (connection.execute(query.encode()).fetchone() or (0,))[0]
    return found


def test_commands_leave_the_same_rows(
    start: Callable[..., Two], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    accounts, person = ["dm-telegram-0123456789abcdef", "dm-slack-0123456789abcdef"], "dm-person-0123456789abcdef"
    two, events = start(heal_interval_s=1), Events.of(11, size)
    said, kept = events.turns([*events.themes, *accounts]), events.entries()
    two.accept(*said, *kept)
    themes = events.themes
    removed = [entry for entry in kept if entry.theme == themes[5]][:2]
    two.accept(*(
        Remove(id=events.id(), theme=themes[5], home=entry.home, target="memory", previous=entry.content,
               at=BEGIN + timedelta(days=1)) for entry in removed
    ))  # fmt: skip
    two.accept(*(
        FactWritten(id=events.id(), theme=theme, at=BEGIN + timedelta(seconds=place), kind="D", target="db",
                    content=theme) for place, theme in enumerate([*themes[:3], *accounts])
    ))  # fmt: skip
    for database in two.databases():
        with database.transaction(10, 10) as connection:
            for past in history.past_entries(connection, 10, theme=themes[5]):
                assert history.take_back(connection, past)[0]
        for account in accounts:
            with database.transaction(10, 10) as connection:
                person_links.link(connection, account, person)
            moved = 1
            while moved:
                with database.transaction(10, 10) as connection:
                    moved = moves.move(connection, account, person, mark=account)
        with database.transaction(10, 10) as connection:
            assert [link.turns for link in person_links.listed(connection, 10)] == [0, 0]
            assert person_links.unlink(connection, accounts[1])
    for command in (
        ("remap", themes[0], "renamed", "--yes"),
        ("remap", themes[1], themes[2], "--yes"),
        ("prune", "--theme", themes[3], "--before", "2030-01-01", "--yes"),
        ("erase", "--theme", themes[4], "--yes"),
        ("dedupe", "--theme", themes[5], "--dry-run"),
        ("quarantine", "list"),
        ("remap",),
    ):
        two.command(monkeypatch, *command)
    with psycopg.connect(two.dsns[1]) as connection:
        found = connection.execute("select from memory_entry_homes where agent_identity = %s", [themes[4]])
        assert found.rowcount == 0, "what is erased is noted nowhere"
    # Renamed, joined and restored entries are found by their home from another theme.
    moved_on = [entry for entry in kept if entry.theme in (themes[0], themes[1]) and not entry.tags][::3] + removed[:1]
    two.accept(*(
        Remove(id=events.id(), theme=themes[6], home=entry.home, target=entry.target, previous=entry.content,
               at=BEGIN + timedelta(days=400)) for entry in moved_on
    ))  # fmt: skip
    left = "\n".join(rows(two.dsns[1])["memory_entries"])
    assert not [entry for entry in moved_on if entry.content in left]
    archive = tmp_path / "archive"
    monkeypatch.setenv("HERMES_PGVECTOR_DSN", two.dsns[1])
    assert hermes_pgvector("--home", str(two.runtimes[1].home.path), "export", str(archive)).code == 0
    two.command(monkeypatch, "import", str(archive), "--theme", "imported")
    wait_for(lambda: lacking(two) == 0, 120)
    for command in (
        ("themes", "--json"),
        ("history", "--theme", themes[5], "--json"),
        ("list", "--theme", themes[2], "--json"),
        ("list", "--limit", "50", "--json"),
        ("sessions", "--theme", themes[6], "--json"),
        ("facts", "list", "--theme", themes[2], "--json"),
        ("search", "copper bridge", "--theme", themes[2], "--json"),
        ("preview", "copper bridge winter", "--theme", themes[6], "--json"),
        ("stats", "--json"),
    ):
        equal(*two.command(monkeypatch, *command), command)
    counts = two.same_rows()
    assert counts["memory_history"] >= 1
    assert two.recalls(events) > 25 * len(themes)
