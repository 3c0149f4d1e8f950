"""Writing and recalling through PgBouncer, which gives each transaction any free connection."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from commandline import hermes_pgvector
from faultrig import memory
from faultrig.agent import Agents
from faultrig.memory import QUICK
from faultrig.pgbouncer import SERVERS_MAX, Pooler, pooled
from loopback import Endpoint

from hermes_memory_pgvector.errors import SettingsError
from hermes_memory_pgvector.model import Add, Caller, Remove, Replace, TurnTaken
from hermes_memory_pgvector.runtime import acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store.schema.migrations import migrate
from hermes_memory_pgvector.tools import toolset


@pytest.fixture
def pooler(database: str) -> Iterator[Pooler]:
    with pooled(database) as started:
        yield started


def settings_for(pooler: Pooler, endpoint: Endpoint) -> dict[str, Any]:
    return {**QUICK, "dsn": pooler.dsn, "embed_url": endpoint.url}


def test_turns_and_entries_are_stored_and_recalled(
    pooler: Pooler, database: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    runtime = acquire(Settings(**settings_for(pooler, endpoint)), tmp_path / "home")
    try:
        common: dict[str, Any] = {"theme": "ops", "home": runtime.home.id, "target": "memory"}
        for number in range(60):
            assert runtime.accept(
                TurnTaken(theme="ops", session_id="s", user=f"where is host-{number}", assistant=f"in row {number}")
            )
            assert runtime.accept(Add(content=f"the port of host-{number} is 5{number:03}", **common))
        assert runtime.accept(Replace(previous="the port of host-7 is 5007", content="host-7 is away", **common))
        assert runtime.accept(Remove(previous="the port of host-8 is 5008", **common))
        memory.settle(runtime, database)
        assert len(memory.entries(database)) == 59
        for number in (3, 7, 31):
            said = json.loads(
                toolset.call(runtime, "recall_conversation", {"query": f"where is host-{number}"}, Caller(theme="ops"))
            )
            assert f"where is host-{number}" in json.dumps(said)
            assert not said.get("degraded")
            known = json.loads(toolset.call(runtime, "recall_memory", {"query": f"host-{number}"}, Caller(theme="ops")))
            assert f"host-{number} is" in json.dumps(known)
        assert runtime.writer.counters.applied == 122
    finally:
        release(runtime)


def test_many_processes_share_few_connections_and_leave_no_settings_on_them(
    pooler: Pooler, database: str, endpoint: Endpoint, tmp_path: Path, agents: Agents
) -> None:
    settings = settings_for(pooler, endpoint)
    homes = [tmp_path / f"home{number}" for number in range(4)]
    for number, home in enumerate(homes):
        home.mkdir()
        agents.start(
            home=str(home), files=False, pause_s=0.01, seed=number, settings={**settings, "bulk_sync_on_init": False},
            acts=10**6, polite=False,
        )  # fmt: skip
    seen = []
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        with psycopg.connect(database) as connection:
            seen.append(servers(connection))
        time.sleep(0.05)
    pooler.kill()
    time.sleep(0.5)
    pooler.start()
    time.sleep(0.5)
    for pid in list(agents.running):
        agents.end(pid)
    # A connection that the pooler drops ends a moment after the next one began.
    assert 0 < statistics.median(seen) <= SERVERS_MAX
    everything = memory.all_is_stored(homes, settings, database)
    assert len(everything.turns) > 20
    with psycopg.connect(pooler.dsn) as connection:
        assert connection.execute("show statement_timeout").fetchone() == ("0",)
        assert connection.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone() == (0,)


def servers(connection: psycopg.Connection[Any]) -> int:
    """The connections to the database besides this one and those that the nodes of a cluster hold to each other."""
    row = connection.execute(
        "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and backend_type = 'client backend' and application_name not like 'citus_internal%'"
    ).fetchone()
    return int(row[0]) if row else 0


def test_migrate_refuses_the_pooler_and_leaves_no_lock_behind(empty_database: str) -> None:
    with pooled(empty_database) as pooler:
        with pytest.raises(SettingsError, match="transaction pooler"):
            migrate(pooler.dsn, dimensions=384)
        assert migrate(empty_database, dimensions=384)


@pytest.mark.parametrize("command", ["tune --apply", "reembed --model other --yes"])
def test_a_command_that_needs_a_session_refuses_the_pooler(
    database: str, pooler: Pooler, tmp_path: Path, command: str
) -> None:
    outcome = hermes_pgvector("--home", str(tmp_path), *command.split(), "--dsn", pooler.dsn)
    assert outcome.code == 1
    assert "transaction pooler" in outcome.err
    assert "migrate" not in outcome.err
    with psycopg.connect(database) as connection:
        locks = "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database "
        assert connection.execute(f"{locks} where datname = current_database())").fetchone() == (0,)
