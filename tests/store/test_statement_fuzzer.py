"""Statements of a login in two databases that differ in rows of other themes only: each answer is the same in both."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import not_on_citus
import psycopg
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from psycopg.conninfo import make_conninfo
from servers import Server
from sql_grammar import LEAKS, MINE, OTHERS, TABLES, functions, programs, settings

from hermes_memory_pgvector.store.schema import migrations, row_security

pytestmark = not_on_citus.row_security

EXAMPLES = 400
DIGEST = """
    create schema fuzz;
    grant usage on schema fuzz to public;
    create function fuzz.digest() returns text language plpgsql security definer set search_path = public as $$
    declare
      item regclass;
      part text;
      whole text := '';
    begin
      for item in select name from memory_themed_tables() order by name::text loop
        execute format('select md5(coalesce(string_agg(t::text, '','' order by t::text), '''')) from %s t'
                       ' where agent_identity not in (''mine'', ''mine-new'')', item) into part;
        whole := whole || item || part;
      end loop;
      return md5(whole);
    end $$"""


class World:
    """A database as a login sees it. `others` is how many rows of each theme of others each table has."""

    def __init__(self, owner: str, login: str, others: int) -> None:
        self.owner = owner
        with psycopg.connect(owner, autocommit=True) as connection:
            row_security.turn_off(connection)
            connection.execute(DIGEST)
            connection.execute("insert into memory_theme_grants (login, pattern) values (%s, 'mine'), (%s, 'mine-new')",
                               [login, login])  # fmt: skip
            order = sorted(TABLES, key=lambda table: table.endswith("_pieces"))
            for table in order:
                for theme, number in [(theme, n) for theme in MINE for n in (1, 2)] + [
                    (theme, n) for theme in OTHERS for n in range(1, 1 + others)
                ]:
                    text = f"'about {theme} meadow {number * (others if theme in OTHERS else 1)}'"
                    row = TABLES[table][2].format(f"'{theme}'", n=number, text=text)
                    connection.execute(f"insert into {table} {row} on conflict do nothing".encode())
            for table in ("conversations", "memory_entries", "facts"):
                connection.execute(f"update {table} set search = to_tsvector('english', content)".encode())
            connection.execute("select setval(c.oid, 1000) from pg_class c where relkind = 'S'")
            row_security.turn_on(connection)
        self.notices: list[str] = []
        dsn = make_conninfo(owner, user=login, password="for-tests")
        self.connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=None)
        self.connection.add_notice_handler(lambda notice: self.notices.append(notice.message_primary or ""))
        self.digest = self._digest()

    def answers(self, program: Sequence[str]) -> list[Any]:
        """What each statement of a program answers. Nothing stays of it.

        Raises AssertionError when rows of others change.
        """
        self.connection.execute("begin")
        try:
            for leak in LEAKS:
                self.connection.execute(leak.encode())
            found = [answer for line in program for answer in self._answers(line)]
            self.connection.execute("reset search_path; reset role")
            assert self._digest() == self.digest, "rows of other themes have changed"
        finally:
            self.connection.execute("rollback")
            self.connection.execute("discard all")
        return found

    def _answers(self, line: str) -> Iterator[Any]:
        for statement in line.split("; ") if not line.startswith("do ") else [line]:
            self.notices.clear()
            self.connection.execute("savepoint s")
            try:
                answer = self._answer(statement)
            except psycopg.Error as error:
                answer = error.sqlstate, plain(error.diag.message_primary or str(error))
                self.connection.execute("rollback to s")
            # How often a function is called follows from the plan, whose estimates count rows of all themes.
            yield statement, answer, sorted(set(map(plain, self.notices)))

    def _answer(self, statement: str) -> Any:
        if statement.startswith("copy "):
            with self.connection.cursor().copy(statement.encode()) as copied:
                return sorted(plain(bytes(row).decode()) for row in copied)
        cursor = self.connection.execute(statement.encode())
        if statement.startswith("explain "):
            return "planned"
        rows = cursor.fetchall() if cursor.description else []
        return cursor.rowcount, sorted(plain(repr(row)) for row in rows)

    def _digest(self) -> str:
        (found,) = self.connection.execute("select fuzz.digest()").fetchone() or ("",)
        return str(found)


def plain(text: str) -> str:
    """A text without the current time and without random ids."""
    today = "|".join(f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (-1, 0, 1))
    text = re.sub(rf"({today})[T ][0-9:.+]+", "now", text)
    return re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "uuid", text)


Worlds = tuple[World, World]


@pytest.fixture(scope="module")
def worlds(server: Server) -> Iterator[Worlds]:
    login = f"hermes_fuzz_{uuid.uuid4().hex[:12]}"
    names = [server.create(server.template(384)) for _ in range(2)]
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {login} LOGIN PASSWORD 'for-tests'".encode())
        found = []
        for name, others in zip(names, (1, 5), strict=True):
            migrations.migrate(server.dsn_of(name), runtime_role=login)
            found.append(World(server.dsn_of(name), login, others))
        yield found[0], found[1]
        for world, name in zip(found, names, strict=True):
            world.connection.close()
            server.drop(name)
        connection.execute(f"DROP ROLE {login}".encode())


def fuzz(worlds: Worlds, examples: int, *, shrink: bool = True, of: Any = programs) -> None:
    """Raise AssertionError for a program, one of `of`, whose answers differ."""
    phases = [Phase.generate, Phase.shrink] if shrink else [Phase.generate]

    @hypothesis_settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=phases
    )
    @given(of)
    def run(program: list[str]) -> None:
        for one, other in zip(*(world.answers(program) for world in worlds), strict=True):
            assert one == other, f"{program} differ at {one[0]}: {one[1:]} and {other[1:]}"

    run()


def test_no_statement_tells_of_rows_of_other_themes(worlds: Worlds) -> None:
    fuzz(worlds, EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_statement_of_many_tells_of_rows_of_other_themes(worlds: Worlds) -> None:
    fuzz(worlds, 10_000)


BROKEN = {
    "a policy that lets all through": "alter policy memory_themes on {table} using (true)",
    "a policy with another theme": "alter policy memory_themes on {table} using (agent_identity in ('mine', 'other'))",
    "no row security": "alter table {table} disable row level security",
    "a policy that only reads are held to": "alter policy memory_themes on {table} with check (true)",
}


@pytest.mark.parametrize(
    ("how", "table"),
    [
        ("a policy that lets all through", "conversations"),
        ("a policy with another theme", "conversations"),
        ("no row security", "memory_entries"),
        pytest.param("a policy that lets all through", "memory_agents", marks=pytest.mark.slow),
        pytest.param("a policy that only reads are held to", "conversations", marks=pytest.mark.slow),
    ],
)
def test_a_broken_policy_is_found(worlds: Worlds, how: str, table: str) -> None:
    owners = [psycopg.connect(world.owner, autocommit=True) for world in worlds]
    try:
        for owner in owners:
            owner.execute(BROKEN[how].format(table=table).encode())
        with pytest.raises(AssertionError):
            fuzz(worlds, 50 * EXAMPLES, shrink=False)
    finally:
        for owner in owners:
            row_security.turn_on(owner)
            owner.close()


def function(name: str, replace: Callable[[str], str], connection: psycopg.Connection[Any]) -> str:
    """Change a function; returns what it was."""
    (text,) = connection.execute(f"select pg_get_functiondef('{name}'::regproc)".encode()).fetchone() or ("",)
    assert replace(text) != text
    connection.execute(replace(text).encode())
    return str(text)


@pytest.mark.parametrize("name", ["memory_rows_with_words", "prune_memory_history", "memory_themes"])
def test_a_function_that_does_not_look_at_the_grants_is_found(worlds: Worlds, name: str) -> None:
    change = {
        "memory_rows_with_words": lambda text: text.replace(
            "WHEN memory_theme_key", "WHEN true OR memory_theme_key"
        ).replace("memory_query_in_themes(query, themes)", "query"),
        "prune_memory_history": lambda text: text.replace("AND (memory_theme_key", "AND (true OR memory_theme_key"),
        "memory_themes": lambda text: text.replace("OR EXISTS", "OR true OR EXISTS"),
    }[name]
    owners = [psycopg.connect(world.owner, autocommit=True) for world in worlds]
    before = [function(name, change, owner) for owner in owners]
    try:
        with pytest.raises(AssertionError):
            fuzz(worlds, 20 * EXAMPLES, shrink=False, of=st.lists(functions | settings, min_size=1, max_size=3))
    finally:
        for owner, text in zip(owners, before, strict=True):
            owner.execute(text.encode())
            owner.close()
