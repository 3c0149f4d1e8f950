"""Recall of facts: by words and by meaning, the current ones of the themes in scope."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint, vector
from waiting import wait_for

from hermes_memory_pgvector.model import Add, FactKind, FactWritten, Hit, RecallRequest, Scope, TurnTaken, Vector
from hermes_memory_pgvector.recall.recaller import Recaller
from hermes_memory_pgvector.runtime import Runtime
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import rows, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.passages import prepare

pytestmark = pytest.mark.on_citus

START = datetime(2026, 3, 4, tzinfo=UTC)
OPS, ALL = Scope("ops", ("ops",)), Scope("ops", None)
PERSON = "dm-telegram-0123456789abcdef"
PLANS: list[dict[str, int]] = [{}, {"exact_rows_max": 0, "word_candidates_max": 100}]


class Memory:
    """A database and a recaller whose vectors point where the words of a text do. Facts are a second apart."""

    model, dimensions = "words", 384

    def __init__(self, dsn: str, folder: Path, **changed: Any) -> None:
        self.dsn, settings = dsn, Settings(dsn=dsn, **changed)
        self.database = Database(settings, folder)
        self.recaller = Recaller(self.database, lambda: self, settings)
        self.written = 0

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        return [vector(text) for text in texts]

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        return vector(text)

    def close(self) -> None:
        pass

    def fact(self, target: str, content: str, kind: FactKind = "V", **more: Any) -> FactWritten:
        self.written += 1
        at = START + timedelta(seconds=self.written)
        return FactWritten(**{"theme": "ops", "session_id": "s", "at": at, **more}, kind=kind, target=target,
                           content=content)  # fmt: skip

    def add(self, *events: Any, embedded: bool = True) -> None:
        prepared = list(map(prepare, events))
        for passage in (passage for event in prepared for passage in event.passages):
            passage.vector = vector(passage.content) if embedded else None
        with self.database.transaction(20, 60) as connection:
            rows.apply(connection, prepared)

    def psql(self, statement: str, *parameters: Any) -> list[Any]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def hits(self, query: str, scope: Scope = OPS, limit: int = 10) -> tuple[Hit, ...]:
        found = self.recaller.recall("facts", RecallRequest(query=query, scope=scope, limit=limit, budget_s=20))
        assert found.degraded == ()
        return found.hits

    def found(self, query: str, scope: Scope = OPS, limit: int = 10) -> list[str]:
        return [hit.content for hit in self.hits(query, scope, limit)]


@pytest.fixture
def make(database: str, tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    made: list[Memory] = []

    def start(**changed: Any) -> Memory:
        made.append(Memory(database, tmp_path, **changed))
        return made[-1]

    yield start
    for memory in made:
        memory.database.close()


@pytest.mark.each_version
@pytest.mark.parametrize("plan", PLANS)
def test_a_hit_has_all_that_a_fact_is(make: Callable[..., Memory], plan: dict[str, int]) -> None:
    memory = make(**plan)
    memory.add(memory.fact("auth.token", "JWT for seven days", "D", scope="auth", metadata={"agent": "cursor"}))
    (hit,) = memory.hits("how long is a JWT valid")
    assert (hit.theme, hit.target, hit.content) == ("ops", "auth.token", "auth.token: JWT for seven days")
    assert hit.at == START + timedelta(seconds=1)
    assert hit.metadata == {
        "agent": "cursor",
        "fact": {"kind": "D", "scope": "auth", "content": "JWT for seven days", "status": "active"},
    }
    assert "jwt" in hit.matched
    assert hit.similarity is not None


@pytest.mark.each_version
@pytest.mark.parametrize("plan", PLANS)
def test_cold_facts_are_found_and_past_ones_are_not(make: Callable[..., Memory], plan: dict[str, int]) -> None:
    memory = make(**plan)
    memory.add(
        memory.fact("pump", "old kelp"), memory.fact("pump", "new kelp"), memory.fact("valve", "kelp", scope="x")
    )
    memory.add(memory.fact("valve", "kelp is done", "done", scope="x"), memory.fact("tank", "kelp archived"))
    memory.psql("update facts set status = 'archived' where target = 'tank'")
    hits = memory.hits("kelp")
    assert {(hit.content, hit.metadata["fact"]["status"]) for hit in hits} == {
        ("pump: new kelp", "active"), ("valve: kelp", "cold"), ("valve: kelp is done", "cold")
    }  # fmt: skip


@pytest.mark.parametrize("plan", PLANS)
def test_by_meaning_alone_and_by_words_alone(make: Callable[..., Memory], plan: dict[str, int]) -> None:
    memory = make(**plan)
    memory.add(*(memory.fact(f"row.{n}", f"number {n} drum") for n in range(50)))
    memory.add(memory.fact("lamp", "shed frog"))
    memory.add(memory.fact("yarn", "plum tusk"), embedded=False)
    memory.psql("update facts set search = to_tsvector('english', 'nothing') where target = 'lamp'")
    assert memory.found("lamp shed frog", limit=1) == ["lamp: shed frog"]
    assert memory.found("plum", limit=1) == ["yarn: plum tusk"]


def test_words_of_the_target_and_words_without_spaces_are_found(make: Callable[..., Memory]) -> None:
    memory = make()
    memory.add(
        memory.fact("greenhouse", "code 4711"), memory.fact("会议", "东京的会议改到星期五"), memory.fact("x", "y")
    )
    assert memory.found("greenhouse", limit=1) == ["greenhouse: code 4711"]
    assert memory.found("东京", limit=1) == ["会议: 东京的会议改到星期五"]


@pytest.mark.parametrize("plan", PLANS)
def test_facts_of_other_themes_are_found_where_the_scope_has_them(
    make: Callable[..., Memory], plan: dict[str, int]
) -> None:
    memory = make(**plan)
    for theme in ("ops", "billing", PERSON):
        memory.add(memory.fact("kelp", theme.replace("-", " "), theme=theme))
    assert memory.found("kelp") == ["kelp: ops"]
    assert set(memory.found("kelp", ALL)) == {"kelp: ops", "kelp: billing"}
    assert set(memory.found("kelp", Scope("ops", ("ops", "billing")))) == {"kelp: ops", "kelp: billing"}
    assert memory.found("kelp", Scope(PERSON, (PERSON,))) == [f"kelp: {PERSON.replace('-', ' ')}"]


@pytest.mark.parametrize("plan", PLANS)
def test_a_scope_narrows_to_a_label_a_session_and_times(make: Callable[..., Memory], plan: dict[str, int]) -> None:
    memory = make(**plan)
    memory.add(
        memory.fact("one", "kelp", scope="roof"),
        memory.fact("two", "kelp", scope="cellar", session_id="t"),
        memory.fact("three", "kelp", session_id="u"),
    )
    assert memory.found("kelp", Scope("ops", ("ops",), label="roof")) == ["one: kelp"]
    assert memory.found("kelp", Scope("ops", ("ops",), "t")) == ["two: kelp"]
    assert memory.found("kelp", Scope("ops", ("ops",), since=START + timedelta(seconds=3))) == ["three: kelp"]
    assert memory.found("kelp", Scope("ops", ("ops",), until=START + timedelta(seconds=2))) == ["one: kelp"]
    assert memory.found("kelp", Scope("ops", ("ops",), tags=("garden",))) == []
    assert len(memory.found("kelp", Scope("ops", ("ops",), without_session="s"))) == 3


def test_two_targets_with_the_same_content_are_two_hits(make: Callable[..., Memory]) -> None:
    memory = make()
    memory.add(memory.fact("port.db", "5432"), memory.fact("port.replica", "5432"), memory.fact("port.db", "5432", "C"))
    assert set(memory.found("5432")) == {"port.db: 5432", "port.replica: 5432"}


def test_each_kind_of_rows_finds_its_own(make: Callable[..., Memory]) -> None:
    memory = make()
    memory.add(
        memory.fact("kelp", "a fact"),
        Add(theme="ops", target="memory", content="kelp is an entry"),
        TurnTaken(theme="ops", session_id="s", user="kelp is a turn", assistant=""),
    )
    request = RecallRequest(query="kelp", scope=OPS, limit=5, budget_s=20)
    found = memory.recaller.recall_each(("entries", "turns", "facts"), request)
    assert [[hit.content for hit in recall.hits] for recall in found] == [
        ["kelp is an entry"], ["kelp is a turn"], ["kelp: a fact"]
    ]  # fmt: skip


def test_the_words_of_a_large_theme_are_counted_from_its_current_facts(make: Callable[..., Memory]) -> None:
    memory = make()
    memory.psql(
        "insert into facts (agent_identity, kind, target, content, search) "
        "select 'ops', 'V', 'row.' || n, 'drum ' || n, to_tsvector('english', 'drum ' || n) "
        "from generate_series(1, 3000) as n"
    )
    memory.psql(
        "insert into facts (agent_identity, kind, target, content, status, search) select 'ops', 'V', 'row', 'yarn',"
        " 'superseded', to_tsvector('english', 'yarn') from generate_series(1, 3000) as n"
    )
    with memory.database.transaction(20, 60) as connection:
        while upkeep.count_words(connection, 2000, "^dm-"):
            pass
    counted = dict(memory.psql("select word, rows from memory_words where agent_identity = 'ops' and kind = 'facts'"))
    assert counted[""] == 3000
    assert 2900 <= counted["drum"] <= 3100
    assert "yarn" not in counted
    found = memory.recaller.recall("facts", RecallRequest(query="drum 2741", scope=OPS, limit=1, budget_s=20))
    assert [hit.content for hit in found.hits] == ["row.2741: drum 2741"]


def test_a_running_agent_adds_the_vectors_and_the_words_that_facts_lack(
    database: str, tmp_path: Path, endpoint: Endpoint
) -> None:
    endpoint.dimensions = 384
    with psycopg.connect(database) as connection:
        connection.execute(
            "insert into facts (agent_identity, kind, target, content, status) "
            "values ('ops', 'V', 'pump', 'kelp', 'cold'), ('ops', 'D', 'pump', 'frog', 'superseded')"
        )
    settings = Settings(dsn=database, embed_url=endpoint.url, embed_model="test", batch_linger_s=0, heal_interval_s=1)  # type: ignore[arg-type]
    runtime = Runtime(settings, tmp_path / "home")
    try:
        assert runtime.wait_ready(10)
        assert runtime.accept(FactWritten(theme="ops", kind="C", target="lamp", content="drum"))
        assert runtime.writer.flush(20)

        def lacking() -> list[Any]:
            with psycopg.connect(database) as connection:
                return connection.execute(
                    "select target, status from facts where embedding is null or search is null"
                ).fetchall()

        wait_for(lambda: lacking() == [("pump", "superseded")])
        scope = runtime.scope("ops", "current", "")
        found = runtime.recall("facts", RecallRequest(query="kelp", scope=scope, limit=1, budget_s=10))
        assert [hit.content for hit in found.hits] == ["pump: kelp"]
    finally:
        runtime.close(5)
