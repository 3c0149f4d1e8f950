"""The tools that write, called by accounts that are linked to one person."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from logins import with_and_without_row_security
from loopback import Endpoint

from hermes_memory_pgvector.model import Caller
from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.store import moves, person_links
from hermes_memory_pgvector.tools import toolset

PERSON = "dm-person-00000000000000aa"
PHONE, LAPTOP = "dm-telegram-0123456789abcdef", "dm-discord-0123456789abcdef"


@pytest.fixture
def start(tmp_path: Path, agents_database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    """A runtime of one home in a new process; it knows no link yet."""
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        for runtime in running:
            release(runtime)
        (tmp_path / "memories").mkdir(exist_ok=True)
        values = {
            "dsn": agents_database, "embed_url": endpoint.url, "embed_model": "test", "recall_budget_s": 20,
            "tools": "all", "batch_linger_s": 0, **changed,
        }  # fmt: skip
        running[:] = [acquire(Settings(**values), tmp_path)]
        return running[0]

    yield make
    for runtime in running:
        release(runtime)


def link(runtime: Runtime, *accounts: str) -> None:
    for account in accounts:
        with runtime.database.transaction(10, 20) as connection:
            person_links.link(connection, account, PERSON)
            while moves.move(connection, account, PERSON, mark=account):
                pass


def use(runtime: Runtime, tool: str, account: str = PHONE, **arguments: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(toolset.call(runtime, tool, arguments, Caller(theme=account, session_id="s1")))
    return value


@with_and_without_row_security
@pytest.mark.parametrize("tool", ["forget", "update", "remember", "list_memories"])
def test_the_first_call_of_a_process_serves_the_person(start: Callable[..., Runtime], tool: str) -> None:
    first = start()
    kept = use(first, "remember", content="kelp is red", sync=True)
    link(first, PHONE, LAPTOP)
    arguments: dict[str, dict[str, Any]] = {
        "forget": {"id": kept["id"]},
        "update": {"id": kept["id"], "content": "kelp is green"},
        "remember": {"supersedes": kept["id"], "content": "kelp is green", "sync": True},
        "list_memories": {},
    }
    answer = use(start(), tool, LAPTOP, **arguments[tool])
    assert answer.get("status", "listed") in ("forgotten", "stored", "listed"), answer
    if tool == "list_memories":
        assert [entry["id"] for entry in answer["entries"]] == [kept["id"]]


@with_and_without_row_security
@pytest.mark.parametrize("tool", ["forget", "update", "remember"])
def test_a_write_of_a_linked_account_is_approved_in_a_new_process(
    start: Callable[..., Runtime], tmp_path: Path, tool: str
) -> None:
    first = start()
    kept = use(first, "remember", content="kelp is red", tags=["sea"], sync=True)
    link(first, PHONE, LAPTOP)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"memory": {"write_approval": True}}))
    arguments: dict[str, dict[str, Any]] = {
        "forget": {"id": kept["id"]},
        "update": {"id": kept["id"], "content": "kelp is green"},
        "remember": {"supersedes": kept["id"], "content": "kelp is green"},
    }
    agent = start(pending_max=99)
    assert agent.wait_ready(20)
    assert use(agent, tool, LAPTOP, **arguments[tool])["status"] == "waits for approval"
    command = start()
    (write,) = PendingWrites(command.home.state, command.settings).all()
    toolset.approve(command, write)
    assert command.writer.flush(20)
    with psycopg.connect(command.database.dsn) as connection:
        found = connection.execute("select agent_identity, content, tags from memory_entries").fetchall()
    assert found == ([] if tool == "forget" else [(PERSON, "kelp is green", ["sea"])])


@with_and_without_row_security
def test_what_a_theme_may_write_to_a_linked_account_replaces_nothing_of_the_person(
    start: Callable[..., Runtime],
) -> None:
    runtime = start(also_write={"billing": ["home"]}, cross_theme_recall="all")
    shared = use(runtime, "remember", "billing", content="kelp is red", theme="home", sync=True)
    private = use(runtime, "remember", PHONE, content="the code is 4711", tags=["secret"], sync=True)
    replacing = {"theme": "home", "sync": True, "supersedes": shared["id"]}
    assert use(runtime, "remember", "billing", content="kelp is green", **replacing)["status"] == "stored"
    link(runtime, "home", PHONE)
    answer = use(runtime, "remember", "billing", content="the code is 1", theme="home", supersedes=private["id"])
    assert answer == {"error": f"supersedes is {private['id']}; the memory of theme home has no such entry"}
    assert use(runtime, "remember", "home", content="the code is 1", supersedes=private["id"])["status"] == "accepted"
