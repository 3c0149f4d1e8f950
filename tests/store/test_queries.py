from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from psycopg import sql
from servers import Server

from hermes_memory_pgvector.model import Scope
from hermes_memory_pgvector.recall.recaller import SEARCH_LIMIT
from hermes_memory_pgvector.recall.vector_search import GRAPH_SETTINGS
from hermes_memory_pgvector.store import queries
from hermes_memory_pgvector.store.queries import QUERIES, WORDS_MAX, Kind, for_words
from hermes_memory_pgvector.store.retrieval import NEAREST_OF_ALL_ROWS, parameters_of

pytestmark = pytest.mark.each_version

TABLES: dict[Kind, str] = {"turns": "conversations", "entries": "memory_entries", "facts": "facts"}
SCOPES = {
    "one theme": Scope("small", ("small",)),
    "several themes": Scope("small", ("small", "large")),
    "a session": Scope("large", ("large",), "session-3"),
    "all": Scope("small", None),
}


# All statements, those that depend on the words of a question for three numbers of them.
STATEMENTS = {name: statement for name, statement in QUERIES.items() if "$held" not in statement} | {
    f"{name}_{count}": for_words(name, count)
    for name, statement in QUERIES.items()
    if "$held" in statement
    for count in (0, 1, WORDS_MAX)
}


def as_server_sees(statement: str) -> tuple[str, list[str]]:
    """The statement with numbered parameters, as the driver sends it, and their names."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)[sb]", statement)))
    numbered = re.sub(r"%\((\w+)\)[sb]", lambda found: f"${names.index(found[1]) + 1}", statement)
    assert "%" not in numbered.replace("%%", ""), "a percent sign that the driver would stumble over"
    return numbered.replace("%%", "%"), names


def test_every_file_is_a_statement_and_every_statement_is_a_file() -> None:
    folder = Path(queries.__file__).parent / "sql"
    templates = {path.stem: path.read_text(encoding="utf-8") for path in (folder / "each").glob("*.sql")}
    each = {name.replace("kind", kind) for name in templates for kind in TABLES}
    scoped = re.compile(r"\$(narrow|counted)\b")
    each |= {
        f"{name.replace('kind', kind)}_tagged"
        for name in templates
        for kind in TABLES
        if scoped.search(templates[name])
    }
    assert set(QUERIES) == {path.stem for path in folder.glob("*.sql")} | each
    assert len(QUERIES) > 20
    for name, statement in STATEMENTS.items():
        code = re.sub(r"--[^\n]*", "", statement).strip()
        assert code, name
        assert ";" not in code, f"{name} holds more than one statement"


def test_every_statement_prepares_on_a_migrated_database(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        for name, statement in STATEMENTS.items():
            numbered, names = as_server_sees(statement)
            try:
                connection.execute(f"prepare {name} as {numbered}".encode())
            except psycopg.Error as error:
                pytest.fail(f"{name}.sql: {error}")
            row = connection.execute(
                "select cardinality(parameter_types) from pg_prepared_statements where name = %s", [name]
            ).fetchone()
            assert row == (len(names),), name


# About rows of all themes that lack something, of sessions of an unknown theme, with equal vectors; about grants.
EVERY_THEME = (
    "lacking", "newest_of_sessions", "count_equal_vectors_", "list_grants", "add_grant", "remove_grant"
)  # fmt: skip


def test_every_statement_about_rows_names_their_theme() -> None:
    # So that each can be sent to one node when the tables are distributed by it.
    for name, statement in STATEMENTS.items():
        if not name.startswith(EVERY_THEME) and re.search(
            r"\b(from|into|update|join)\s+(memory_\w+|conversations|facts?(_\w+)?)\b", statement
        ):
            assert "agent_identity" in statement, name


@pytest.fixture(scope="module")
def stocked(server: Server) -> Iterator[str]:
    """The name of a database with a large and a small theme, and no statistics about them."""
    name = server.create(server.template(384))
    with psycopg.connect(server.dsn_of(name), autocommit=True) as connection:
        connection.execute(
            "create function random_halfvec(n int) returns halfvec volatile language sql as "
            "$$ select array_agg(random() - 0.5)::real[]::vector::halfvec from generate_series(1, 384) $$"
        )
        for table, text, extra in (
            ("conversations", "session_id, role", "'session-' || n % 7, 'user'"),
            ("memory_entries", "home, target", "'home', 'memory'"),
            ("facts", "kind, target", "'V', 'row.' || n"),
        ):
            connection.execute(f"alter table {table} set (autovacuum_enabled = false)".encode())
            connection.execute(
                f"""insert into {table} (agent_identity, {text}, content, embedding, search)
                select case when n % 10 = 0 then 'small' else 'large' end, {extra}, 'row number ' || n,
                       random_halfvec(n),
                       to_tsvector('english', 'row number ' || n)
                from generate_series(1, 800) as n""".encode()
            )
    yield name
    server.drop(name)


@pytest.fixture
def unknown(server: Server, stocked: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection to a copy of that database."""
    name = server.create(stocked)
    with psycopg.connect(server.dsn_of(name), autocommit=True) as connection:
        yield connection
    server.drop(name)


@pytest.fixture
def filled(unknown: psycopg.Connection[tuple[Any, ...]]) -> psycopg.Connection[tuple[Any, ...]]:
    """The same with statistics."""
    for table in TABLES.values():
        unknown.execute(f"analyze {table}".encode())
    return unknown


def plan(connection: psycopg.Connection[tuple[Any, ...]], statement: str, scope: Scope, vector: str) -> str:
    parameters = {**parameters_of(scope), "vector": vector, "limit": SEARCH_LIMIT, "seen": NEAREST_OF_ALL_ROWS}
    rows = connection.execute("explain " + statement, parameters)  # type: ignore[arg-type]
    return "\n".join(line for (line,) in rows)


@pytest.mark.parametrize("kind", TABLES)
@not_on_citus.plans
def test_the_exact_plan_never_takes_the_graph_index_and_the_indexed_one_always_does(
    filled: psycopg.Connection[tuple[Any, ...]], kind: Kind
) -> None:
    (vector,) = filled.execute(f"select embedding::text from {TABLES[kind]} limit 1".encode()).fetchone() or ("",)
    graph = f"{TABLES[kind]}_meaning"
    for name, scope in SCOPES.items():
        exact = plan(filled, QUERIES[f"nearest_{kind}_exact"], scope, vector)
        assert graph not in exact, f"{name}:\n{exact}"
        with filled.transaction():
            for key, value in GRAPH_SETTINGS.items():
                setting = sql.SQL(key.replace("__", "."))
                filled.execute(sql.SQL("set local {} = {}").format(setting, sql.Literal(value)))
            for way in ("of_all", "of_scope"):
                indexed = plan(filled, QUERIES[f"nearest_{kind}_{way}"], scope, vector)
                assert f"Index Scan using {graph}" in indexed, f"{name}:\n{indexed}"
            # Settings that pin the one plan must not turn the other.
            assert graph not in plan(filled, QUERIES[f"nearest_{kind}_exact"], scope, vector)


@pytest.mark.parametrize("kind", TABLES)
@not_on_citus.plans
def test_looking_for_rows_to_heal_reads_an_index_of_those_alone(
    filled: psycopg.Connection[tuple[Any, ...]], kind: Kind
) -> None:
    filled.execute(f"update {TABLES[kind]} set embedding = null where id % 200 = 0".encode())
    filled.execute(f"update {TABLES[kind]} set search = null where id % 200 = 1".encode())
    filled.execute(f"vacuum analyze {TABLES[kind]}".encode())
    filled.execute("set enable_seqscan = off")
    for name in (f"unembedded_{kind}", f"unworded_{kind}"):
        rows = filled.execute("explain " + QUERIES[name], {"skip": [], "limit": 10})  # type: ignore[arg-type]
        found = "\n".join(line for (line,) in rows)
        index = f"{TABLES[kind]}_{name.removesuffix(f'_{kind}')}"
        assert f"using {index}" in found or f"on {index}" in found, found
