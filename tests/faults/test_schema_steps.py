"""Release 2.0.0 beside each newer schema, and this release beside one that does not serve it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from faultrig.releases import HookAgent, command_line, next_release, release_2_0_0
from hostrig.marks import one_server
from loopback import Endpoint
from psycopg.conninfo import make_conninfo
from waiting import wait_for

from hermes_memory_pgvector.store.schema.migrations import migrate, migration_files

SCHEMA_OF_2_0_0 = 8
SESSION = "s1"
START = Callable[[Path | None], HookAgent]


@pytest.fixture
def values(empty_database: str, endpoint: Endpoint, role: str) -> dict[str, str]:
    """Settings of a home whose role may do what `migrate --runtime-role` grants."""
    return {
        "dsn": make_conninfo(empty_database, user=role), "embed_url": endpoint.url, "embed_model": "test",
        "tools": "all", "batch_linger_s": "0", "heal_interval_s": "1", "retry_max_s": "0.3", "recall_budget_s": "20",
        "embed_wait_s": "5", "adopt_interval_s": "1",
    }  # fmt: skip


@pytest.fixture
def start(tmp_path: Path, values: dict[str, str], empty_database: str, role: str) -> Iterator[START]:
    """Start an agent of a release in the home."""
    started: list[HookAgent] = []

    def make(path: Path | None) -> HookAgent:
        agent = HookAgent(path, tmp_path / "home", values)
        agent.begin(SESSION, agent_identity="ops")
        started.append(agent)
        return agent

    yield make
    for agent in started:
        if agent.process.poll() is None:
            agent.kill()
    with psycopg.connect(empty_database, autocommit=True) as connection:
        connection.execute(f'drop owned by "{role}"'.encode())


def contents(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        return sorted(row[0] for row in connection.execute("select content from conversations where role = 'user'"))


def say(agent: HookAgent, word: str) -> None:
    agent.call(SESSION, "on_turn_start", 1, f"where is the {word}?")
    agent.call(SESSION, "sync_turn", f"where is the {word}?", f"the {word} lies in the harbour")


def finds(agent: HookAgent, tool: str, word: str) -> bool:
    return word in json.dumps(agent.tool(SESSION, tool, query=f"{word} in the harbour", scope="all").get("hits"))


@one_server
def test_release_2_0_0_stores_and_recalls_beside_each_newer_schema(
    tmp_path: Path, values: dict[str, str], empty_database: str, role: str, start: START
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "old").mkdir()
    old = release_2_0_0(tmp_path / "old")
    migrating = ("migrate", "--dsn", empty_database, "--runtime-role", role)
    code, shown = command_line(old, tmp_path / "home", values, *migrating, "--dimensions", "384")
    assert code == 0, shown
    agent, said = start(old), list[str]()
    (tmp_path / "steps").mkdir()
    for file in migration_files():
        (tmp_path / "steps" / f"{file.name}.sql").write_text(file.text, encoding="utf-8")
        if file.version < SCHEMA_OF_2_0_0:
            continue
        applied = migrate(empty_database, folder=tmp_path / "steps")
        assert applied == [file.name] * (file.version > SCHEMA_OF_2_0_0)
        word = f"dinghy{file.version}"
        said.append(f"where is the {word}?")
        say(agent, word)
        assert agent.tool(SESSION, "remember", content=f"The {word} is blue.", sync=True)["status"] == "stored", (
            file.name
        )
        wait_for(lambda: contents(empty_database) == sorted(said))
        for tool in ("recall_conversation", "recall_memory"):
            assert finds(agent, tool, word), (file.name, tool)
            assert finds(agent, tool, f"dinghy{SCHEMA_OF_2_0_0}"), (file.name, tool)
    code, shown = command_line(None, tmp_path / "home", values, *migrating)
    assert code == 0, shown
    present = start(None)
    for one, other, word in ((agent, present, "skiff"), (present, agent, "canoe")):
        said.append(f"where is the {word}?")
        say(one, word)
        wait_for(lambda: contents(empty_database) == sorted(said))
        wait_for(lambda other=other, word=word: finds(other, "recall_conversation", word))
    assert finds(present, "recall_memory", f"dinghy{SCHEMA_OF_2_0_0}")


@one_server
def test_a_client_that_the_database_serves_no_more_keeps_events_until_it_is_upgraded(
    tmp_path: Path, values: dict[str, str], empty_database: str, role: str, start: START
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "next").mkdir()
    newer, number = next_release(tmp_path / "next")
    migrate(empty_database, dimensions=384, runtime_role=role)
    agent = start(None)
    say(agent, "dinghy")
    wait_for(lambda: contents(empty_database) == ["where is the dinghy?"])
    code, shown = command_line(newer, tmp_path / "home", values, "migrate", "--dsn", empty_database, "--force")
    assert code == 0, shown
    # It runs on, with open connections, and a process that starts now is refused as well.
    say(agent, "skiff")
    answer = agent.tool(SESSION, "recall_conversation", query="dinghy")
    assert "upgrade this release" in json.dumps(answer), answer
    late = start(None)
    say(late, "canoe")
    upgrade = f"the database serves those that know schema {number} or a newer one"
    wait_for(lambda: upgrade in document(tmp_path, values, "status")["database"]["problem"])
    wait_for(lambda: upgrade in json.dumps(document(tmp_path, values, "status")["processes"]))
    checks = {check["name"]: check for check in document(tmp_path, values, "doctor")["checks"]}
    assert checks["schema"]["verdict"] == "problem"
    assert upgrade in checks["schema"]["found"]
    assert "pip install" in checks["schema"]["remedy"]
    assert contents(empty_database) == ["where is the dinghy?"]
    agent.kill()
    late.end()
    assert contents(empty_database) == ["where is the dinghy?"]
    upgraded = start(newer)
    say(upgraded, "barge")
    everything = [f"where is the {word}?" for word in ("barge", "canoe", "dinghy", "skiff")]
    wait_for(lambda: contents(empty_database) == everything)
    wait_for(lambda: finds(upgraded, "recall_conversation", "canoe"))


def document(folder: Path, values: dict[str, str], command: str) -> Any:
    """What a command of this release prints for the home."""
    shown = command_line(None, folder / "home", values, command, "--json")[1]
    return json.JSONDecoder().raw_decode(shown)[0]
