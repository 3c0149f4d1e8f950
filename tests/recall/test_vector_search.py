"""Recall by meaning at every size: the plans, the indexes they read, and what they find of what is there."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import not_on_citus
import numpy as np
import psycopg
import pytest
from psycopg import sql
from waiting import wait_for

from hermes_memory_pgvector.embedding.bundled.local import LocalEmbedder
from hermes_memory_pgvector.errors import DatabaseUnavailable
from hermes_memory_pgvector.model import RecallRequest, Scope, Vector
from hermes_memory_pgvector.recall import vector_search
from hermes_memory_pgvector.recall.fusion import candidates_of
from hermes_memory_pgvector.recall.recaller import SEARCH_LIMIT, Recaller
from hermes_memory_pgvector.recall.word_search import WordMatches
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import retrieval, theme_index
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.connection.local_settings import part
from hermes_memory_pgvector.store.queries import QUERIES, index_name
from hermes_memory_pgvector.store.retrieval import Size, parameters_of
from hermes_memory_pgvector.store.schema.preflight import admin_connection

Connection = psycopg.Connection[Any]
ROOT = Path(__file__).resolve().parent.parent.parent
# Rows of each theme; the vectors of a theme gather loosely around a point of its own.
SIZES = {"half": 2000, "sixth": 700, "twentieth": 200, "small": 20, "smallest": 3, "others": 1077}
# As long as turns are: a table of narrow rows would be read as fast as an index.
TEXT = "and what was said then " * 40


class Spoken:
    """An embedder for which the question is its vector."""

    model, dimensions = "spoken", 384

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        chance = random.Random(text)
        return unit([chance.gauss() for _ in range(384)], chance.randrange(7))

    def embed_passages(self, texts: Any, timeout_s: float) -> list[Vector]:
        raise NotImplementedError

    def close(self) -> None:
        pass


def unit(numbers: list[float], leaning: int) -> Vector:
    numbers = [value + (4.0 if place % 7 == leaning else 0.0) for place, value in enumerate(numbers)]
    length = sum(value * value for value in numbers) ** 0.5
    return [value / length for value in numbers]


@pytest.fixture(scope="module")
def crowded(server: Any) -> Iterator[str]:
    """The DSN of a database with themes of every size."""
    name = server.create(server.template(384))
    chance = random.Random(5)
    try:
        with psycopg.connect(server.dsn_of(name), autocommit=True) as connection:
            rows = [(theme, place) for place, theme in enumerate(SIZES) for _ in range(SIZES[theme])]
            chance.shuffle(rows)
            # Pages count as visible to all only when their commits are on disk.
            connection.execute("set synchronous_commit = on")
            columns = "agent_identity, session_id, role, content, embedding"
            with connection.cursor().copy(f"copy conversations ({columns}) from stdin".encode()) as copy:
                for number, (theme, leaning) in enumerate(rows):
                    vector = unit([chance.gauss() for _ in range(384)], leaning)
                    copy.write_row((theme, f"session {number}", "user", f"row {number} {TEXT}", str(vector)))
            connection.execute("vacuum analyze conversations")
        yield server.dsn_of(name)
    finally:
        server.drop(name)


@pytest.fixture
def ask(crowded: str, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    made: list[Database] = []

    def start(**changed: Any) -> Callable[..., Any]:
        settings = Settings(dsn=crowded, **changed)
        made.append(Database(settings, tmp_path))
        recaller = Recaller(made[-1], Spoken, settings)
        return lambda query, theme, limit=10: recaller.recall(
            "turns", RecallRequest(query=query, scope=Scope("x", theme and (theme,)), limit=limit, budget_s=30)
        )

    yield start
    for database in made:
        database.close()


def brute_force(dsn: str, theme: str | None, question: Vector, count: int) -> list[float]:
    """The best similarities in a theme, with no index that could come in between."""
    with psycopg.connect(dsn) as connection:
        connection.execute("set local enable_indexscan = off")
        rows = connection.execute(
            "select (1 - (embedding <=> %s::halfvec))::float8 from conversations "
            "where %s::text is null or agent_identity = %s order by 1 desc limit %s",
            [str(question), theme, theme, count],
        ).fetchall()
    return [similarity for (similarity,) in rows]


# --- what is found


@pytest.mark.parametrize("exact_rows_max", [0, 100, 50_000])
def test_every_theme_gets_its_nearest_rows_and_as_many_as_it_has(
    ask: Callable[..., Any], crowded: str, exact_rows_max: int
) -> None:
    recall = ask(exact_rows_max=exact_rows_max)
    shares = []
    # The first question of a connection is one of them.
    for theme, number in product([*SIZES, None], range(5)):
        query = f"zq{chr(97 + number)}"
        answer = recall(query, theme)
        wanted = brute_force(crowded, theme, Spoken().embed_query(query, 1), 10)
        assert answer.degraded == ()
        assert len(answer.hits) == len(wanted)
        found = [one.similarity for one in answer.texts if one.similarity is not None]
        shares.append(sum(similarity >= wanted[-1] - 1e-6 for similarity in found) / len(wanted))
    assert sum(shares) / len(shares) >= 0.99


def test_a_question_gets_the_same_plan_and_rows_at_the_hundredth_time(ask: Callable[..., Any]) -> None:
    recall = ask(exact_rows_max=100)
    answers = [recall("zqa", "sixth") for _ in range(100)]
    assert {answer.explanation.plan for answer in answers} == {vector_search.GRAPH}
    assert len({tuple(hit.id for hit in answer.hits) for answer in answers}) == 1


def test_the_size_of_a_scope_decides_the_plan() -> None:
    assert vector_search.plan_of(Size(100), 100) == vector_search.EXACT
    assert vector_search.plan_of(Size(101), 100) == vector_search.GRAPH
    assert vector_search.plan_of(Size(101, own_index=True), 100) == vector_search.OWN
    assert vector_search.plan_of(Size(300, table_rows=4_500_000), 100) == vector_search.EXACT
    assert vector_search.plan_of(Size(301, table_rows=4_500_000), 100) == vector_search.GRAPH
    assert vector_search.plan_of(Size(300, own_index=True, table_rows=4_500_000), 100) == vector_search.OWN


@not_on_citus.plans
def test_a_theme_of_a_very_large_table_is_compared_row_by_row_for_longer(
    ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The table has 4,000 rows.
    monkeypatch.setattr(vector_search, "TABLE_ROWS", 40)
    answers = {theme: ask(exact_rows_max=100)("zqa", theme) for theme in ("sixth", "half", None)}
    assert {theme: answer.explanation.plan for theme, answer in answers.items()} == {
        "sixth": vector_search.EXACT, "half": vector_search.GRAPH, None: vector_search.GRAPH,
    }  # fmt: skip
    assert {answer.degraded for answer in answers.values()} == {()}


def explained(connection: Connection, statement: str, scope: Scope, settings: dict[str, Any]) -> str:
    with connection.transaction(force_rollback=True):
        for name, value in settings.items():
            setting = sql.Identifier(*name.split("__"))
            connection.execute(sql.SQL("set local {} = {}").format(setting, sql.Literal(value)))
        question = str(Spoken().embed_query("zqa", 1))
        parameters = {**parameters_of(scope), "vector": question, "limit": SEARCH_LIMIT}
        return "\n".join(line for (line,) in connection.execute("explain " + statement, parameters))  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform != "linux", reason="psycopg traces messages on Linux only")
@not_on_citus.messages
def test_a_part_of_a_transaction_costs_two_round_trips(database: str, tmp_path: Path) -> None:
    messages = tmp_path / "messages"
    store = Database(Settings(dsn=database), tmp_path)  # type: ignore[arg-type]
    with store.transaction(5, 5) as connection, messages.open("w") as file:
        connection.pgconn.trace(file.fileno())
        with part(connection, 1):
            pass
        connection.pgconn.untrace()
    store.close()
    assert messages.read_text().count("ReadyForQuery") == 2


@not_on_citus.plans
def test_exact_search_reads_vectors_alone(crowded: str) -> None:
    with psycopg.connect(crowded, autocommit=True) as connection:
        for scope in (Scope("x", ("half",)), Scope("x", ("sixth",), without_session="session 1")):
            plan = explained(connection, QUERIES["nearest_turns_exact"], scope, vector_search.EXACT_SETTINGS)
            assert "Index Only Scan using conversations_exact" in plan


# --- neighbours


def test_candidates_and_their_neighbours_know_who_stands_before_them(database: str, tmp_path: Path) -> None:
    chance = random.Random(3)
    with psycopg.connect(database, autocommit=True) as connection:
        for _ in range(120):
            connection.execute(
                "insert into conversations (agent_identity, session_id, role, content, ts) "
                "values (%s, %s, 'user', 'x', timestamptz '2025-01-01' + %s * interval '1 minute')",
                [chance.choice("ab"), chance.choice("st"), chance.randrange(20)],
            )
        order = "partition by agent_identity, session_id order by ts, id"
        stored = connection.execute(
            f"select agent_identity, id, lag(id) over ({order}), lead(id) over ({order}) from conversations".encode()
        ).fetchall()
    before = {(theme, row): (theme, previous) if previous else None for theme, row, previous, _ in stored}
    after = {(theme, row): (theme, following) if following else None for theme, row, _, following in stored}
    picked = chance.sample(sorted(before), 15)
    family = {*picked, *map(before.get, picked), *map(after.get, picked)} - {None}
    memory = Database(Settings(dsn=database), tmp_path)
    with memory.transaction(20, 20) as reading:
        related = retrieval.related(reading, "turns", None, picked)
    memory.close()
    matches = WordMatches(picked[5:], np.ones((len(picked[5:]), 1)), ["x"])
    found = candidates_of(related, dict.fromkeys(picked[:8], 0.5), matches)
    assert len(found.keys) == len(family)
    assert set(found.keys) == family
    places = list(zip(found.keys, found.positions.tolist(), strict=True))
    follows = {second: first for (first, n), (second, m) in pairwise(places) if m == n + 1}
    assert follows == {key: before[key] for key in family if before[key] in family}
    assert [key for key, worth in zip(found.keys, found.word_scores[:, 0], strict=True) if worth] == [
        key for key in found.keys if key in picked[5:]
    ]
    assert [key for key, near in zip(found.keys, found.similarities, strict=True) if near == 0.5] == [
        key for key in found.keys if key in picked[:8]
    ]


# --- indexes of single themes


def steps(dsn: str, **bounds: int) -> dict[str, str]:
    with admin_connection(dsn) as connection:
        return {index.theme: index.step for index in theme_index.plan(connection, **bounds)}


def apply(dsn: str, **bounds: int) -> list[str]:
    with admin_connection(dsn) as connection:
        theme_index.lock(connection)
        due = [index for index in theme_index.plan(connection, **bounds) if index.step != "keep"]
        for index in due:
            theme_index.apply(connection, index)
    return [index.step for index in due]


@not_on_citus.plans
def test_a_theme_earns_an_index_uses_it_and_loses_it_again(ask: Callable[..., Any], crowded: str) -> None:
    bounds = {"rows_min": 500, "indexes_max": 24}
    # Half of all rows is too much to gain, and the rest too little.
    assert steps(crowded, **bounds) == {"others": "build", "sixth": "build"}
    assert steps(crowded, rows_min=500, indexes_max=1) == {"others": "build"}
    try:
        assert apply(crowded, **bounds) == ["build", "build"]
        assert steps(crowded, **bounds) == {"others": "keep", "sixth": "keep"}
        assert apply(crowded, **bounds) == []

        scope = Scope("x", ("sixth",))
        name = index_name("turns", "sixth")
        with psycopg.connect(crowded, autocommit=True) as connection:
            connection.execute("analyze conversations")
            assert f"using {name}" in explained(
                connection, QUERIES["nearest_turns_of_scope"], scope, vector_search.GRAPH_SETTINGS
            )
            assert name not in explained(
                connection, QUERIES["nearest_turns_exact"], scope, vector_search.EXACT_SETTINGS
            )
        recall = ask(exact_rows_max=100)
        assert recall("zqa", "sixth").explanation.plan == vector_search.OWN
        assert recall("zqa", "half").explanation.plan == vector_search.GRAPH
        assert recall("zqa", "small").explanation.plan == vector_search.EXACT
        wanted = brute_force(crowded, "sixth", Spoken().embed_query("zqa", 1), 10)
        assert [hit.similarity for hit in recall("zqa", "sixth").hits] == pytest.approx(wanted, abs=1e-6)

        with psycopg.connect(crowded, autocommit=True) as connection:
            connection.execute("update pg_index set indisvalid = false where indexrelid = %s::regclass", [name])
        assert ask(exact_rows_max=100)("zqa", "sixth").explanation.plan == vector_search.GRAPH
        assert steps(crowded, **bounds) == {"others": "keep", "sixth": "rebuild"}
        assert apply(crowded, **bounds) == ["rebuild"]
        assert steps(crowded, **bounds) == {"others": "keep", "sixth": "keep"}
    finally:
        assert apply(crowded, rows_min=500, indexes_max=0) == ["drop", "drop"]
    assert steps(crowded, rows_min=500, indexes_max=0) == {}


def test_two_at_once_do_not_come_into_each_others_way(database: str) -> None:
    with admin_connection(database) as first:
        theme_index.lock(first)
        with pytest.raises(DatabaseUnavailable, match="another tune"), admin_connection(database) as second:
            theme_index.lock(second)
    with admin_connection(database) as third:
        # The server notices the end of a connection a moment after it is closed.
        held = "select from pg_locks where locktype = 'advisory' and database = (" \
               "select oid from pg_database where datname = current_database())"  # fmt: skip
        wait_for(lambda: third.execute(held).rowcount == 0)
        theme_index.lock(third)


# --- half precision


def test_half_precision_ranks_as_full_precision_does(database: str) -> None:
    chance = random.Random(9)
    things = [
        "invoice run",
        "mail relay",
        "choir rehearsal",
        "greenhouse pump",
        "visa form",
        "camera lens",
        "tax audit",
    ]
    deeds = ["was postponed", "failed at night", "costs too much", "works again", "needs a key", "is due on Friday"]
    places = ["Oslo", "the attic", "rack 7", "the second floor", "Lima", "the old barn"]
    texts = [f"The {thing} in {place} {deed}." for thing, place, deed in product(things, places, deeds)]
    model = LocalEmbedder()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create temp table real_ones (id int, whole vector(384), half halfvec(384))")
        for number, vector in enumerate(model.embed_passages(texts, 250)):
            connection.execute("insert into real_ones values (%s, %s, %s)", [number, str(vector), str(vector)])
        agreeing = 0
        for thing, place in chance.sample(list(product(things, places)), 20):
            asked = str(model.embed_query(f"what about the {thing} in {place}?", 60))
            whole, half = (
                {
                    row
                    for (row,) in connection.execute(
                        f"select id from real_ones order by {column} <=> %s::{kind}, id limit 10".encode(), [asked]
                    )
                }
                for column, kind in (("whole", "vector"), ("half", "halfvec"))
            )
            agreeing += len(whole & half)
    model.close()
    assert len(texts) == 252
    assert agreeing / 200 >= 0.99


# --- at size


@pytest.mark.slow
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("rows", [100_000, 1_000_000])
def test_recall_at_size_is_that_of_exact_search(rows: int) -> None:
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < rows * 15_000:
        pytest.skip("needs more free memory")
    script = ROOT / "scripts" / "benchmarks" / "recall.py"
    command = [sys.executable, script, "--rows", str(rows), "--questions", "50", "--least", "0.99"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5000)
    assert done.returncode == 0, done.stdout + done.stderr
