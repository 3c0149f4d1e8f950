"""Logins of agents to whom row security shows their own themes, and tests that run once more as such a login."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import not_on_citus
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

AS_USUAL_AND_WITH_ROW_SECURITY = (
    pytest.param("as usual", id=""),
    pytest.param("row security", id="row-security", marks=not_on_citus.row_security),
)


def with_row_security(*marks: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """A test that runs once more with Postgres itself keeping the themes apart, and then has these marks."""
    usual, restricted = AS_USUAL_AND_WITH_ROW_SECURITY
    marked = pytest.param(*restricted.values, id=restricted.id, marks=[*restricted.marks, *marks])
    return pytest.mark.parametrize("agents_database", [usual, marked], indirect=True)


with_and_without_row_security = with_row_security()


def give_rights(database: str, role: str) -> None:
    """Give a role the rights of agents, as `migrate --runtime-role` does."""
    from hermes_memory_pgvector.store.schema import distribution, migrations, preflight, verification

    migrations.migrate(database, runtime_role=role)
    with preflight.admin_connection(database) as connection:
        distributed = verification.verify(connection).distributed
    if distributed:
        distribution.distribute(database, lambda _line: None)


@contextmanager
def granted_login(database: str) -> Iterator[str]:
    """The database with row security, as a new login with the usual grants of agents connects to it."""
    from hermes_memory_pgvector.store.schema import migrations, row_security

    name = f"hermes_rls_{uuid.uuid4().hex[:12]}"
    role = sql.Identifier(name)
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        migrations.migrate(database, runtime_role=name)
        row_security.turn_on(owner)
        row_security.grant_defaults(owner, name, row_security.OF_AGENTS)
    try:
        yield make_conninfo(database, user=name)
    finally:
        with psycopg.connect(database, autocommit=True) as owner:
            owner.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(role))
            owner.execute(sql.SQL("DROP ROLE {}").format(role))
