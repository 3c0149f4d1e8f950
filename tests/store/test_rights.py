"""What the role of agents may do, tried in SQL as that role: all that agents need, and nothing with the history."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import not_on_citus
import psycopg
import pytest
from connected import connected
from logins import give_rights
from psycopg import sql
from psycopg.conninfo import make_conninfo
from servers import Server

from hermes_memory_pgvector.admin.round_trip import TRIAL
from hermes_memory_pgvector.errors import SchemaNotApplied
from hermes_memory_pgvector.model import Add, Remove, Replace
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import entries, history, moves, person_links, rows, upkeep
from hermes_memory_pgvector.store.connection.database import Database
from hermes_memory_pgvector.store.erasure.marks import SECRETS_MAX
from hermes_memory_pgvector.store.passages import prepare
from hermes_memory_pgvector.store.schema import migrations, rights

LONG_AGO = datetime(2026, 3, 4, tzinfo=UTC)


@pytest.fixture
def agent(server: Server, database: str) -> Iterator[str]:
    """The DSN of a role with the rights of agents."""
    role = f"hermes_rights_{uuid.uuid4().hex[:12]}"
    execute(server.dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'for-tests'")
    give_rights(database, role)
    yield make_conninfo(database, user=role, password="for-tests")
    execute(database, f"DROP OWNED BY {role}")
    execute(server.dsn, f"DROP ROLE {role}")


def execute(dsn: str, *statements: str) -> list[tuple[Any, ...]]:
    """Execute statements in one transaction; returns the rows of the last one."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def role_of(dsn: str) -> str:
    ((role,),) = execute(dsn, "select current_user")
    return str(role)


def past(dsn: str) -> list[tuple[Any, ...]]:
    return execute(dsn, "select agent_identity, content, how from memory_history order by id")


@not_on_citus.two_roles
def test_agents_do_all_their_work_with_the_history_by_these_rights(agent: str, database: str, tmp_path: Path) -> None:
    common: dict[str, Any] = {"theme": "ops", "home": "A", "target": "memory"}
    trial, person = TRIAL.format(mark=uuid.uuid4().hex), "dm-person-0123456789abcdef"
    with connected(agent) as connection:
        for event in (
            Add(content="a", at=LONG_AGO, **common),
            Replace(content="b", previous="a", at=LONG_AGO, **common),
            Remove(previous="b", **common),
            Add(content=trial, **common),
            Remove(previous=trial, **common),
        ):
            with connection.transaction():
                rows.apply(connection, [prepare(event)])
        assert past(database) == [("ops", "a", "replaced"), ("ops", "b", "removed"), ("ops", trial, "removed")]
        entries.forget_trial(connection, "ops", trial)
        assert [entry.content for entry in history.past_entries(connection, 5)] == ["b", "a"]
        assert history.restore(connection, history.past_entries(connection, 1)[0]) is not None
        with connection.transaction():
            assert person_links.link(connection, "ops", person) == 1
        with connection.transaction():
            assert moves.move(connection, "ops", person, mark="ops") == 2
        assert past(database) == [(person, "a", "replaced"), (person, "b", "removed")]
        assert upkeep.prune_history(connection, 1) == 0
        execute(database, "update memory_history set noted_at = now() - interval '25 hours'")
        assert upkeep.prune_history(connection, 1) == 1
    assert past(database) == [(person, "b", "removed")]
    shared = Database(Settings(dsn=agent), tmp_path)  # type: ignore[arg-type]
    try:
        assert shared.claim_person_key("1" * 64) == shared.claim_person_key("2" * 64) == "1" * 64
    finally:
        shared.close()
    assert execute(database, "select name, value from hermes_pgvector_settings where name <> 'oldest_client'") == [
        ("person_key", "1" * 64)
    ]


def test_secrets_of_archives_are_added_and_none_is_replaced(agent: str, database: str) -> None:
    own, other = "ab" * 32, "cd" * 32
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        execute(agent, "select claim_memory_setting('erasure_key', 'no secret')")
    execute(agent, f"select claim_memory_setting('erasure_key', '{own}')")
    for secret in (other, own, other, *(f"{number:064x}" for number in range(40))):
        execute(agent, f"select add_memory_erasure_key('{secret}')")
    for wrong in ("", "zz" * 32, f"{other},"):
        with pytest.raises(psycopg.errors.InvalidParameterValue):
            execute(agent, f"select add_memory_erasure_key('{wrong}')")
    ((held,),) = execute(database, "select value from hermes_pgvector_settings where name = 'erasure_key'")
    assert held.split(",")[:2] == [own, other]
    assert len(held.split(",")) == SECRETS_MAX + 1, "agents refuse so many, and more are not added"


@pytest.mark.parametrize(
    "statement",
    [
        "delete from memory_history",
        "update memory_history set content = ''",
        "truncate memory_history",
        "alter table memory_entries disable trigger memory_entries_history",
        "create or replace function keep_memory_history() returns trigger language plpgsql as 'begin return null; end'",
        "set session_replication_role = replica",
        "insert into hermes_pgvector_settings values ('person_key', 'mine')",
        "update hermes_pgvector_settings set value = 'mine'",
        "delete from hermes_pgvector_settings",
        "select claim_memory_setting('history_days_min', '0')",
        "create table public.mine (id int)",
    ],
)
def test_the_role_cannot_change_the_history_or_the_settings(agent: str, database: str, statement: str) -> None:
    execute(
        database,
        "insert into hermes_pgvector_settings values ('person_key', 'first')",
        "insert into memory_entries (agent_identity, target, content) values ('ops', 'memory', 'kept')",
        "delete from memory_entries",
    )
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(agent, statement)
    assert past(database) == [("ops", "kept", "removed")]
    assert execute(database, "select value from hermes_pgvector_settings where name = 'person_key'") == [("first",)]


def test_the_functions_change_no_past_of_earlier_transactions(agent: str, database: str) -> None:
    execute(
        agent,
        "insert into memory_entries (agent_identity, id, target, content) values ('ops', 7, 'memory', 'kept')",
        "delete from memory_entries",
    )
    before = execute(database, "select * from memory_history")
    # An entry with the id of a deleted one, at the place where it is said to have gone.
    execute(
        agent, "insert into memory_entries (agent_identity, id, target, content) values ('b', 7, 'memory', 'other')"
    )
    execute(
        agent,
        "select complete_memory_history('ops', 7, 'moved', '', now(), null)",
        "select settle_memory_history('ops', 'b', '{7}')",
        "select forget_memory_trial('ops', 'kept')",
        "select prune_memory_history(-1000000)",
        "select claim_memory_setting('person_key', repeat(n, 64)) from unnest(array['1', '2']) as n",
    )
    assert execute(database, "select * from memory_history") == before
    assert execute(database, "select value from hermes_pgvector_settings where name = 'person_key'") == [("1" * 64,)]


@not_on_citus.two_roles
def test_a_deletion_is_not_hidden_as_a_move_to_another_text(agent: str, database: str) -> None:
    execute(
        agent,
        "insert into memory_entries (agent_identity, id, target, content) values"
        " ('ops', 7, 'memory', 'kept'), ('b', 7, 'memory', 'another')",
    )
    execute(
        agent,
        "delete from memory_entries where agent_identity = 'ops'",
        "select settle_memory_history('ops', 'b', '{7}')",
    )
    assert past(database) == [("ops", "kept", "moved")]


@not_on_citus.two_roles
def test_a_table_of_the_session_does_not_stand_in_for_ours(agent: str, database: str) -> None:
    execute(
        agent,
        "create temp table memory_history (like public.memory_history)",
        "set local search_path = pg_temp, public",
        "insert into public.memory_entries (agent_identity, id, target, content) values ('ops', 1, 'memory', 'kept')",
        "delete from public.memory_entries",
        "select public.complete_memory_history('ops', 1, 'replaced', 's', now(), 'new')",
    )
    assert past(database) == [("ops", "kept", "replaced")]


@not_on_citus.two_roles
def test_a_function_of_the_role_does_not_stand_in_for_one_of_postgres(agent: str, database: str) -> None:
    role = role_of(agent)
    execute(database, f"create schema authorization {role}")
    execute(
        agent,
        f"create function {role}.format(text, name) returns text language sql as $$ select 'select $1' $$",
        f"set local search_path = public, {role}",
        "insert into memory_entries (agent_identity, id, target, content) values ('ops', 1, 'memory', 'kept')",
        "update memory_entries set content = 'new'",
        "delete from memory_entries",
    )
    assert past(database) == [("ops", "kept", "edited"), ("ops", "new", "removed")]


@not_on_citus.two_roles
@pytest.mark.parametrize("days", [1, 30])
def test_a_row_of_the_history_stays_whatever_time_an_agent_gives_it(agent: str, database: str, days: int) -> None:
    """A day, or for how long the owner wants it kept."""
    if days > 1:
        execute(database, f"insert into hermes_pgvector_settings values ('history_days_min', '{days}')")
    execute(
        agent,
        "insert into memory_entries (agent_identity, id, target, content) values ('ops', 1, 'memory', 'kept')",
        "delete from memory_entries",
        "select complete_memory_history('ops', 1, 'removed', '', '2020-01-01', null)",
    )
    for hours in (0, 24 * days - 1):
        execute(database, f"update memory_history set noted_at = now() - interval '{hours} hours'")
        assert execute(agent, "select prune_memory_history(1)") == []
    execute(database, f"update memory_history set noted_at = now() - interval '{24 * days + 1} hours'")
    assert len(execute(agent, "select prune_memory_history(1)")) == 1


def test_nobody_else_may_use_the_functions(server: Server, database: str) -> None:
    role = f"hermes_other_{uuid.uuid4().hex[:12]}"
    execute(server.dsn, f"CREATE ROLE {role} LOGIN PASSWORD 'for-tests'")
    try:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(make_conninfo(database, user=role, password="for-tests"), "select prune_memory_history(1)")
    finally:
        execute(server.dsn, f"DROP ROLE {role}")


def test_rights_of_earlier_releases_are_named_and_revoked(agent: str, database: str) -> None:
    role = role_of(agent)
    with psycopg.connect(database, autocommit=True) as connection:
        assert rights.held(connection, role) == rights.Rights((), ())
        wide = sql.SQL("grant all on memory_history, hermes_pgvector_settings to {}").format(sql.Identifier(role))
        connection.execute(wide)
        held = rights.held(connection, role)
        assert held.missing == ()
        assert {"delete on memory_history", "insert on hermes_pgvector_settings"} <= set(held.excess)
        assert migrations.migrate(database, runtime_role=role, narrow=False) == []
        assert rights.held(connection, role) == held
        assert migrations.migrate(database, runtime_role=role) == []
        assert rights.held(connection, role) == rights.Rights((), ())
        # Nothing is taken from an owner: the functions have its rights.
        migrations.migrate(database, runtime_role=role_of(database))
        assert rights.held(connection, role_of(database)).missing == ()


def test_the_error_of_a_role_without_its_rights_names_the_command(agent: str, database: str, tmp_path: Path) -> None:
    execute(database, f"revoke execute on function claim_memory_setting from {role_of(agent)}")
    shared = Database(Settings(dsn=agent), tmp_path)  # type: ignore[arg-type]
    try:
        with pytest.raises(SchemaNotApplied, match="hermes-pgvector migrate"):
            shared.claim_person_key("1" * 64)
    finally:
        shared.close()
