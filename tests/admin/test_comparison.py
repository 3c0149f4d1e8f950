"""The comparison before a change of the model: what of the new vectors and indexes it notices, and what it allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import not_on_citus
import psycopg
import pytest
from loopback import Endpoint, vector
from pgvector.psycopg import register_vector
from servers import Server

from hermes_memory_pgvector.admin.console import Console
from hermes_memory_pgvector.admin.reembed.comparison import SAMPLE_ROWS, Comparison, compare
from hermes_memory_pgvector.admin.reembed.filling import Filling, build_indexes
from hermes_memory_pgvector.embedding import factory
from hermes_memory_pgvector.embedding.protocol import Embedder
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import second_column
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.schema.preflight import admin_connection
from hermes_memory_pgvector.store.schema.verification import Origin

pytestmark = not_on_citus.reembed

DIMENSIONS = 64
# Nearly equal: all have these words in common.
SAME_WORDS = "the kelp beds along the northern pier were measured again at low tide by the same crew, number"


class Drifting(Endpoint):
    """An endpoint that answers the same text differently in each request, by up to `drift` in one of the numbers."""

    drift = 0.0

    def _answer(self, texts: list[str]) -> dict[str, Any]:
        answer = super()._answer(texts)
        for row in answer["data"]:
            row["embedding"][self.requests % self.dimensions] += self.drift
        return answer


class Second:
    """A database whose second column is full and indexed, in a transaction that is undone."""

    def __init__(
        self, connection: psycopg.Connection[Any], endpoint: Drifting, compared: Callable[[], Comparison]
    ) -> None:
        self._connection, self.endpoint, self.compared = connection, endpoint, compared

    def run(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        cursor = self._connection.execute(statement.encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def embed(self, table: str, made: Callable[[str], str], condition: str = "true") -> None:
        """Give rows of a table the vectors of other texts than their own."""
        for row in self.run(f"select id, content from {table} where {condition}"):
            text = str(vector(made(row["content"]), DIMENSIONS))
            self.run(f"update {table} set embedding_next = %s::halfvec where id = %s", text, row["id"])


@pytest.fixture(scope="module")
def filled(server: Server) -> Iterator[str]:
    """A database with turns that are nearly equal, entries and chunks, all with vectors in the second column."""
    name = server.create(server.template(384))
    dsn = server.dsn_of(name)
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into conversations (agent_identity, session_id, role, content, ts) select 'ops', 's' || n %% 7,"
            " case n / 7 %% 2 when 0 then 'user' else 'assistant' end, %s || ' ' || n,"
            " now() - make_interval(secs => 1000 - n) from generate_series(1, 300) as n",
            [SAME_WORDS],
        )
        connection.execute(
            "insert into memory_entries (agent_identity, target, content) select 'ops', 'memory', 'mooring ' || n"
            " || repeat(' is checked by hand' || n, case n % 4 when 0 then 60 else 1 end)"
            " from generate_series(1, 30) as n"
        )
    with opened(dsn) as (connection, embedder, settings, _), TemporaryDirectory() as home:
        origin, console = Origin("new", DIMENSIONS), Console(as_json=False)
        second_column.lock(connection)
        second_column.begin(connection, origin)
        build_indexes(connection, origin, console, only="unembedded")
        database = Database(settings, Path(home))
        Filling(database, embedder, settings, second=True).run(console, 330)
        database.close()
        build_indexes(connection, origin, console)
    yield dsn
    server.drop(name)


@contextmanager
def opened(dsn: str) -> Iterator[tuple[psycopg.Connection[Any], Embedder, Settings, Drifting]]:
    endpoint = Drifting(DIMENSIONS)
    settings = Settings(dsn=dsn, embed_url=endpoint.url, embed_model="new", embed_chars_max=400)
    embedder = factory.build(settings)
    with admin_connection(dsn) as connection:
        register_vector(connection)
        yield connection, embedder, settings, endpoint
    embedder.close()
    endpoint.close()


@pytest.fixture
def second(filled: str) -> Iterator[Second]:
    with opened(filled) as (connection, embedder, settings, endpoint):
        with connection.transaction(force_rollback=True):
            yield Second(connection, endpoint, lambda: compare(connection, embedder, settings))
        # The rows of an update that was undone stay in a graph, which then may not reach others.
        connection.execute("reindex table conversations")


def test_rows_that_are_nearly_equal_are_compared_one_by_one(second: Second) -> None:
    found = second.compared()
    assert (found.problem, found.matching, found.found) == ("", found.sampled, found.sampled)
    assert SAMPLE_ROWS // 2 <= found.sampled <= SAMPLE_ROWS


def test_vectors_of_another_model_are_noticed_also_where_only_a_third_of_the_rows_has_them(second: Second) -> None:
    for table in ("conversations", "memory_entries"):
        second.embed(table, lambda content: f"other {content[::-1]}", "id % 3 = 0")
    assert "vectors that the model does not make of their texts" in second.compared().problem


@pytest.mark.parametrize("table", ["conversations", "memory_entries"])
def test_vectors_of_other_rows_are_noticed(second: Second, table: str) -> None:
    second.run(
        f"update {table} t set embedding_next = o.embedding from (select id, lag(embedding_next) over (order by id)"
        f" as embedding from {table}) as o where o.id = t.id and o.embedding is not null"
    )
    assert "vectors that the model does not make of their texts" in second.compared().problem


def test_chunks_of_other_rows_are_noticed(second: Second) -> None:
    pieces = "memory_entry_pieces_next"
    second.run(f"update {pieces} set embedding_next = (select embedding_next from {pieces} order by row_id limit 1)")
    assert "vectors that the model does not make of their texts" in second.compared().problem


def test_another_prefix_is_noticed(second: Second) -> None:
    second.embed("memory_entries", lambda content: f"query: {content}")
    assert "vectors that the model does not make of their texts" in second.compared().problem


def test_another_prefix_is_noticed_where_there_are_turns_only(second: Second) -> None:
    second.run("delete from memory_entries")
    second.embed("conversations", lambda content: f"query: {content}")
    assert "vectors that the model does not make of their texts" in second.compared().problem


@pytest.mark.parametrize("index", ["conversations_meaning_next", "memory_entry_pieces_meaning_next"])
def test_rows_that_an_index_never_returns_are_noticed(second: Second, index: str) -> None:
    (table,) = (row["name"] for row in second.run(
        "select indrelid::regclass::text as name from pg_index where indexrelid = %s::regclass", index))  # fmt: skip
    second.run("update pg_index set indisready = false where indexrelid = %s::regclass", index)
    minus = f"array_fill(-1, array[{DIMENSIONS}])::vector::halfvec"
    for _ in range(2):
        second.run(f"update {table} set embedding_next = embedding_next * {minus}")
    second.run("update pg_index set indisready = true where indexrelid = %s::regclass", index)
    found = second.compared()
    assert found.matching == found.sampled
    assert found.found < found.sampled
    assert table != "conversations" or "not found by their own vectors" in found.problem


def test_rows_that_are_repeated_so_often_that_a_graph_index_reaches_few_of_them_are_no_problem(second: Second) -> None:
    for text in (f"buoy {letter} is lit" for letter in "abcdefghijklmnopqrstuvwxyz"):
        second.run(
            "insert into conversations (agent_identity, session_id, role, content, ts, embedding_next)"
            " select 'ops', 's', 'user', %s, now(), %s::halfvec from generate_series(1, 100)",
            text, str(vector(text, DIMENSIONS)),
        )  # fmt: skip
    found = second.compared()
    assert (found.problem, found.found) == ("", found.sampled)


def test_turns_whose_neighbours_were_deleted_meanwhile_are_no_problem(second: Second) -> None:
    second.run("delete from conversations where role = 'user'")
    found = second.compared()
    assert (found.problem, found.matching, found.found) == ("", found.sampled, found.sampled)


def test_an_endpoint_that_answers_a_little_differently_each_time_is_no_problem(second: Second) -> None:
    second.endpoint.drift = 0.08
    found = second.compared()
    assert (found.problem, found.matching) == ("", found.sampled)


def test_an_endpoint_that_answers_quite_differently_each_time_is_noticed(second: Second) -> None:
    second.endpoint.drift = 1.0
    assert "vectors that the model does not make of their texts" in second.compared().problem
