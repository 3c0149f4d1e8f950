"""The same memory on one Postgres and on a Citus cluster: the same events, rows and hits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import citus
import psycopg
import pytest
from commandline import hermes_pgvector
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.model import (
    Add,
    Caller,
    Delegated,
    Event,
    FactWritten,
    Recall,
    RecallRequest,
    Remove,
    Replace,
    Scope,
    SessionEnded,
    TurnTaken,
    Withdrawn,
)
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import history, person_links, retrieval, upkeep
from hermes_memory_pgvector.store.schema.distribution import distribute
from hermes_memory_pgvector.store.schema.migrations import migrate
from hermes_memory_pgvector.text.theme_names import RESERVED_PATTERN
from hermes_memory_pgvector.tools import toolset

THEMES = [f"theme-{number}" for number in range(20)]
HOMES = ["a" * 32, "b" * 32]
WORDS = [
    "copper",
    "bridge",
    "winter",
    "ledger",
    "harbour",
    "lantern",
    "orchard",
    "signal",
    "velvet",
    "quartz",
    "meadow",
    "anchor",
    "saddle",
    "thunder",
    "ivory",
]
ROWS = {
    "memory_entries": "agent_identity, home, target, content, embedding::text, search::text, created_at, tags",
    "conversations": "agent_identity, session_id, role, content, ts, embedding::text, search::text, metadata",
    "memory_history": "agent_identity, home, target, content, how, session_id, replaced_by",
    "memory_events": "agent_identity, event_id",
    "memory_tombstones": "agent_identity, home, target, content_key, at",
    "memory_withdrawals": "agent_identity, session_id, role, content_key, at, standing",
    "memory_agent_edges": "agent_identity, task, result, child_session_id",
    "memory_agents": "agent_identity, session_id, kind",
    "facts": "agent_identity, kind, target, scope, content, status, embedding::text",
    "conversation_pieces": "agent_identity, piece, embedding::text",
}


class Two:
    """A memory on one Postgres and one on a cluster, which get the same events."""

    def __init__(self, folder: Path, plain: str, cluster: str, **settings: Any) -> None:
        self.dsns = [plain, cluster]
        self.runtimes: list[Runtime] = []
        for name, dsn in zip(("plain", "cluster"), self.dsns, strict=True):
            home = folder / name
            home.mkdir(parents=True, exist_ok=True)
            runtime = acquire(Settings(dsn=dsn, embed_model="test", batch_linger_s=0, **settings), home)
            assert runtime.wait_ready(20)
            self.runtimes.append(runtime)

    def accept(self, *events: Event) -> None:
        for runtime in self.runtimes:
            for event in events:
                assert runtime.accept(event)
        for runtime in self.runtimes:
            assert runtime.writer.flush(60)
            counters = runtime.writer.counters
            assert counters.set_aside == 0, counters

    def same_rows(self) -> dict[str, int]:
        """Assert that both have the same rows; returns how many."""
        found: list[dict[str, list[Any]]] = []
        for dsn in self.dsns:
            with psycopg.connect(dsn) as connection:
                rows = {
                    table: sorted(map(repr, connection.execute(f"select {columns} from {table}".encode())))
                    for table, columns in ROWS.items()
                }
            found.append(rows)
        for table in ROWS:
            assert found[1][table] == found[0][table], table
        return {table: len(rows) for table, rows in found[0].items()}

    def count_words(self, rows_min: int) -> None:
        """Count the words of all themes of more rows, in both."""
        for runtime in self.runtimes:
            with runtime.database.transaction(10, 10) as connection:
                connection.execute("delete from memory_words")
                while upkeep.count_words(connection, rows_min, RESERVED_PATTERN):
                    pass

    def words(self, query: str, scope: Scope) -> list[float]:
        """The scores by words of what each finds, added up."""
        request = RecallRequest(query=query, scope=scope, limit=10, budget_s=20)
        return [sum(hit.words for hit in runtime.recall("turns", request).hits) for runtime in self.runtimes]

    def tools(self, query: str, theme: str) -> int:
        """Assert that the agent's tools and memories before a turn are the same, apart from ids."""
        found = 0
        for name in ("recall_memory", "recall_conversation"):
            answers = [toolset.call(runtime, name, {"query": query}, Caller(theme=theme)) for runtime in self.runtimes]
            plain, cluster = (re.sub(r'("id": )\d+', r"\1 0", answer) for answer in answers)
            assert cluster == plain
            found += plain.count('"content"')
        texts = [
            runtime.prefetch.text_before_turn(theme, query, "another", False, runtime.own(theme))
            for runtime in self.runtimes
        ]
        assert texts[1] == texts[0]
        return found

    def recall(self, kind: Any, query: str, scope: Scope, limit: int = 10, context: int = 0) -> int:
        """Assert that both find the same hits; returns how many."""
        request = RecallRequest(query=query, scope=scope, limit=limit, budget_s=20, context=context)
        plain, cluster = (told(runtime.recall(kind, request)) for runtime in self.runtimes)
        assert cluster == plain
        return len(plain[0])


def told(found: Recall) -> tuple[list[Any], tuple[str, ...]]:
    """What a recall says, without the ids, which differ, and without the time of the test."""
    hits = [
        (hit.theme, hit.content, round(hit.score, 6), hit.session_id, hit.role, hit.target,
         hit.at if hit.at.month == 1 else None,
         hit.similarity and round(hit.similarity, 6), round(hit.words, 6), hit.matched,
         [near.content for near in hit.context])
        for hit in found.hits
    ]  # fmt: skip
    return hits, found.degraded


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A distributed database."""
    try:
        with citus.cluster() as coordinator, citus.database(coordinator) as dsn:
            migrate(dsn, dimensions=384)
            distribute(dsn, lambda _line: None)
            yield dsn
    except citus.NoCluster as missing:
        pytest.skip(str(missing))


@pytest.fixture
def start(tmp_path: Path, database: str, cluster: str, endpoint: Endpoint) -> Iterator[Callable[..., Two]]:
    running: list[Two] = []

    def make(**settings: Any) -> Two:
        running.append(Two(tmp_path, database, cluster, embed_url=endpoint.url, **settings))
        return running[-1]

    yield make
    for two in running:
        for runtime in two.runtimes:
            release(runtime)
    with psycopg.connect(cluster, autocommit=True) as connection:
        for table in ROWS:
            connection.execute(f"truncate {table} cascade".encode())


def number(rng: random.Random) -> str:
    return UUID(int=rng.getrandbits(128)).hex


def turns(rng: random.Random, at: datetime, themes: Sequence[str] = THEMES, count: int = 8) -> list[TurnTaken]:
    """Turns in each theme, in two sessions."""
    made: list[TurnTaken] = []
    for theme in themes:
        for place in range(count):
            at += timedelta(seconds=2)
            said = [" ".join(rng.sample(WORDS, 5)) for _ in range(2)]
            made.append(TurnTaken(
                id=number(rng), theme=theme, home=HOMES[place % 2], session_id=f"{theme}-{place % 2}", at=at,
                user=f"{said[0]} {place}?", assistant=f"{said[1]} {place}.",
            ))  # fmt: skip
    return made


def entries(rng: random.Random, at: datetime) -> list[Add]:
    """Six entries in each theme, of two homes."""
    made: list[Add] = []
    for theme in THEMES:
        for place in range(6):
            at += timedelta(seconds=2)
            made.append(Add(
                id=number(rng), theme=theme, home=HOMES[place % 2], at=at, target="user" if place == 5 else "memory",
                content=f"{theme} note {place}: {' '.join(rng.sample(WORDS, 6))}",
                tags=("red",) if place == 1 else None, metadata={"origin": "remember"} if place == 1 else {},
            ))  # fmt: skip
    return made


def recalls(two: Two, rng: random.Random) -> int:
    """Ask both in one theme, in a session, in several themes and in all; returns how many hits they have found."""
    found = 0
    for theme in THEMES:
        query = " ".join(rng.sample(WORDS, 3))
        found += two.recall("turns", query, Scope(theme, (theme,)), context=1)
        found += two.recall("entries", query, Scope(theme, (theme,)))
        found += two.recall("turns", query, Scope(theme, (theme,), f"{theme}-1"))
    for theme in THEMES[:4]:
        found += two.tools(" ".join(rng.sample(WORDS, 3)), theme)
    for kind in ("turns", "entries", "facts"):
        query = " ".join(rng.sample(WORDS, 3))
        found += two.recall(kind, query, Scope(THEMES[0], tuple(THEMES[:5])))
        found += two.recall(kind, query, Scope(THEMES[0], None))
    found += two.recall("entries", query, Scope(THEMES[0], tuple(THEMES[:3]), tags=("red",)))
    return found


def test_a_cluster_has_the_same_rows_and_hits_as_one_postgres(start: Callable[..., Two]) -> None:
    rng, at = random.Random(23), datetime(2026, 1, 2, tzinfo=UTC)
    two = start()
    said, kept = turns(rng, at), entries(rng, at)
    two.accept(*said, *kept)
    two.accept(*said[:5], *kept[:5])  # nothing is stored twice
    assert two.same_rows() | {"conversation_pieces": 0} == dict.fromkeys(ROWS, 0) | {
        "memory_entries": 120, "conversations": 320, "memory_events": 280,
    }  # fmt: skip
    assert recalls(two, rng) > 500


def test_large_themes_are_searched_by_the_indexes_of_their_nodes(start: Callable[..., Two]) -> None:
    rng = random.Random(5)
    two = start(word_candidates_max=100, exact_rows_max=100)
    two.accept(*turns(rng, datetime(2026, 1, 2, tzinfo=UTC), THEMES[:3], 80))
    two.count_words(100)
    found = [two.recall("turns", " ".join(rng.sample(WORDS, 3)), Scope(theme, (theme,))) for theme in THEMES[:3] * 4]
    assert sum(found) > 80
    # Of several large themes, the cluster reads as many candidates of each as one Postgres does of all.
    for themes in (tuple(THEMES[:3]), None):
        for _ in range(5):
            plain, cluster = two.words(" ".join(rng.sample(WORDS, 3)), Scope(THEMES[0], themes))
            assert cluster > 0.9 * plain


def test_a_recall_over_many_themes_says_that_it_left_some_out(
    start: Callable[..., Two], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "THEMES_MAX", 5)
    two = start()
    two.accept(*turns(random.Random(3), datetime(2026, 1, 2, tzinfo=UTC), THEMES[:7], 2))
    request = RecallRequest(query="copper bridge", scope=Scope(THEMES[0], None), limit=10, budget_s=20)
    plain, cluster = (runtime.recall("turns", request) for runtime in two.runtimes)
    assert plain.degraded == ()
    assert cluster.degraded == ("words were looked for in the 5 largest themes only: name the themes",)
    assert len(cluster.hits) > 0


def test_changes_of_a_memory_leave_the_same_rows(start: Callable[..., Two], endpoint: Endpoint) -> None:
    rng, at = random.Random(42), datetime(2026, 1, 2, tzinfo=UTC)
    two = start()
    said, kept = turns(rng, at), entries(rng, at)
    two.accept(*said, *kept)
    later = iter(at + timedelta(days=1, seconds=2 * place) for place in range(10_000))

    def common(theme: str, home: str = HOMES[0]) -> dict[str, Any]:
        return {"id": number(rng), "theme": theme, "home": home, "at": next(later), "session_id": "later"}

    changes: list[Event] = []
    late: list[Event] = []
    for place, theme in enumerate(THEMES):
        mine = [entry for entry in kept if entry.theme == theme]
        turn = next(turn for turn in said if turn.theme == theme and turn.session_id == f"{theme}-0")
        changes += [
            Replace(**common(theme), target="memory", content=f"{theme} replaced", previous=mine[0].content),
            Replace(**common(theme), target="memory", content=f"{theme} by a part", old_text=mine[2].content[:14]),
            Remove(**common(theme, HOMES[1]), target="memory", previous=mine[3].content),
            # Removed in another theme of the home: found by the home.
            Remove(**common(THEMES[place - 1]), target="memory", previous=mine[4].content),
            Add(**common(theme) | {"at": at}, target="memory", content=mine[4].content),  # older than its removal
            Add(**common(theme), target="memory", content=f"{theme} of a file", from_file=True),
            Add(**common(THEMES[place - 1]), target="memory", content=f"{theme} of a file"),
            Remove(**common(theme), target="user", previous="never there", from_file=True),
            Withdrawn(**common(theme) | {"session_id": turn.session_id}, turns=((turn.user, turn.assistant),),
                      standing=(0,)),
            Delegated(**common(theme), task=f"task of {theme}", result="done", child_session_id=f"child-{theme}"),
            SessionEnded(**common(theme) | {"session_id": f"{theme}-1"}, turns=(("was it stored", f"no, {theme}"),)),
            FactWritten(**common(theme), kind="D", target="db", content="postgres"),
            FactWritten(**common(theme), kind="D", target="db", content="postgres on a cluster"),
        ]  # fmt: skip
        late.append(
            TurnTaken(
                **common(theme) | {"at": at, "session_id": f"{theme}-1"}, user="was it stored", assistant=f"no, {theme}"
            )
        )
    two.accept(*changes)
    two.accept(*late)
    counts = two.same_rows()
    assert counts["memory_history"] >= 60
    assert counts["memory_agent_edges"] == counts["memory_agents"] == 20
    assert counts["memory_withdrawals"] >= 20
    assert recalls(two, rng) > 500


def test_rows_without_vectors_and_words_are_healed(start: Callable[..., Two], endpoint: Endpoint) -> None:
    rng, at = random.Random(7), datetime(2026, 1, 2, tzinfo=UTC)
    two = start(heal_interval_s=1)
    endpoint.status = 503
    long = " ".join(f"{word} {place}" for place, word in enumerate(WORDS * 60))
    two.accept(
        *turns(rng, at),
        *entries(rng, at),
        TurnTaken(theme=THEMES[0], user="long?", assistant=long, at=at, id=number(rng)),
    )
    for dsn in two.dsns:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("update conversations set search = null where role = 'user'")
    endpoint.status = 200

    def lacking() -> int:
        found = 0
        for dsn in two.dsns:
            with psycopg.connect(dsn, autocommit=True) as connection:
                for table in ("conversations", "memory_entries"):
                    query = f"select count(*) from {table} where embedding is null or search is null"
                    found += (connection.execute(query.encode()).fetchone() or (0,))[0]
        return found

    for runtime in two.runtimes:
        runtime.writer.wake()
    wait_for(lambda: lacking() == 0, 60)
    assert two.same_rows()["conversation_pieces"] > 0
    assert recalls(two, rng) > 500


def test_commands_leave_the_same_rows(
    start: Callable[..., Two], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, at = random.Random(11), datetime(2026, 1, 2, tzinfo=UTC)
    accounts, person = ["dm-telegram-0123456789abcdef", "dm-slack-0123456789abcdef"], "dm-person-0123456789abcdef"
    two = start()
    said, kept = turns(rng, at, [*THEMES, *accounts]), entries(rng, at)
    two.accept(*said, *kept)
    removed = [entry for entry in kept if entry.theme == THEMES[5]][:2]
    two.accept(*(
        Remove(id=number(rng), theme=THEMES[5], home=entry.home, target="memory", previous=entry.content,
               at=at + timedelta(days=1)) for entry in removed
    ))  # fmt: skip
    facts = [
        FactWritten(id=number(rng), theme=theme, at=at + timedelta(seconds=place), kind="D", target="db", content=theme)
        for place, theme in enumerate([*THEMES[:3], *accounts])
    ]
    two.accept(*facts)
    for dsn, runtime in zip(two.dsns, two.runtimes, strict=True):
        monkeypatch.setenv("HERMES_PGVECTOR_DSN", dsn)
        home = tmp_path / f"operator of {runtime.home.path.name}"
        home.mkdir()
        with runtime.database.transaction(10, 10) as connection:
            for past in history.past_entries(connection, 10, theme=THEMES[5]):
                assert history.take_back(connection, past)[0]
        for account in accounts:
            with runtime.database.transaction(10, 10) as connection:
                person_links.link(connection, account, person)
            moved = 1
            while moved:
                with runtime.database.transaction(10, 10) as connection:
                    moved = person_links.move(connection, account, person, mark=account)
        with runtime.database.transaction(10, 10) as connection:
            assert [link.turns for link in person_links.listed(connection, 10)] == [0, 0]
            assert person_links.unlink(connection, accounts[1])
        for command in (
            ("remap", THEMES[0], "renamed", "--yes"),
            ("remap", THEMES[1], THEMES[2], "--yes"),
            ("prune", "--theme", THEMES[3], "--before", "2030-01-01", "--yes"),
            ("erase", "--theme", THEMES[4], "--yes"),
            ("dedupe", "--theme", THEMES[5], "--dry-run"),
            ("themes",),
            ("quarantine", "list"),
            ("remap",),
            ("export", str(home / "archive")),
        ):
            done = hermes_pgvector("--home", str(home), *command)
            assert done.code in {0, 3}, (command, done.shown)
            assert "cannot do it" not in done.shown, (command, done.shown)
    counts = two.same_rows()
    assert counts["memory_history"] >= 1
    assert recalls(two, rng) > 400
