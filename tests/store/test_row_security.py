"""Row security: what logins with grants see and write, in SQL and through the store. Postgres refuses the rest."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from servers import Server

from hermes_memory_pgvector.store.schema import migrations, row_security, verification

AT = datetime(2026, 3, 4, tzinfo=UTC)
PERSON, ROOM = "dm-telegram-0123456789abcdef", "group-telegram-0123456789abcdef"


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements in one transaction; returns the rows of the last one."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@dataclass
class Secured:
    """A database with row security, and its logins."""

    server: Server
    owner: str
    logins: list[str] = field(default_factory=list)

    def login(self, *patterns: str) -> str:
        """The DSN of a new login with these grants."""
        name = f"hermes_rls_{uuid.uuid4().hex[:12]}"
        execute(self.server.dsn, f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'")
        self.logins.append(name)
        migrations.migrate(self.owner, runtime_role=name)
        for pattern in patterns:
            execute(self.owner, f"insert into memory_theme_grants (login, pattern) values ('{name}', '{pattern}')")
        return make_conninfo(self.owner, user=name, password="for-tests")


@pytest.fixture(params=["superuser", "plain owner"])
def secured(server: Server, make_database: Callable[..., str], request: pytest.FixtureRequest) -> Iterator[Secured]:
    """A database whose tables are owned by a superuser, or by a role that is none."""
    found = Secured(server, make_database(384 if request.param == "superuser" else None))
    if request.param != "superuser":
        admin, name = found.owner, f"hermes_rls_{uuid.uuid4().hex[:12]}"
        execute(admin, f"CREATE ROLE {name} LOGIN PASSWORD 'for-tests'", "CREATE EXTENSION vector",
                f"GRANT CREATE, USAGE ON SCHEMA public TO {name}")  # fmt: skip
        found.logins.append(name)
        found.owner = make_conninfo(admin, user=name, password="for-tests")
        migrations.migrate(found.owner, dimensions=384)
    with psycopg.connect(found.owner, autocommit=True) as connection:
        row_security.turn_on(connection)
    yield found
    admin = make_conninfo(server.dsn, dbname=make_conninfo(found.owner).split("dbname=")[1].split()[0])
    for name in reversed(found.logins):
        execute(admin, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def test_each_table_with_themes_has_a_policy(secured: Secured) -> None:
    themed = execute(
        secured.owner,
        "select attrelid::regclass::text from pg_attribute where attname = 'agent_identity' and attrelid in"
        " (select oid from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace) order by 1",
    )
    found = execute(secured.owner, "select name::text from memory_themed_tables() order by 1")
    assert found == themed
    assert {name for (name,) in found} <= set(verification.TABLES)
    agent = secured.login("billing")
    with psycopg.connect(agent, autocommit=True) as connection:
        assert row_security.flaws(connection) == []
    with psycopg.connect(secured.owner, autocommit=True, row_factory=dict_row) as connection:
        assert row_security.flaws(connection)
