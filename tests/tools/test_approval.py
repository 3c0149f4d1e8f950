"""With the host's write approval, what the tools write waits for a person, and is then written as usual."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from loopback import Endpoint

from hermes_memory_pgvector.errors import Refused, Unavailable
from hermes_memory_pgvector.model import Add, Caller
from hermes_memory_pgvector.outbox.pending_writes import PendingWrites
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset

FACT = "The staging database listens on port 5433."


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(approval: Any = True, **changed: Any) -> Runtime:
        (tmp_path / "memories").mkdir(exist_ok=True)
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"memory": {"write_approval": approval}}))
        values = {
            "dsn": database, "embed_url": endpoint.url, "embed_model": "test", "tools": "all", "batch_linger_s": 0,
            "recall_budget_s": 20, **changed,
        }  # fmt: skip
        running.append(acquire(Settings(**values), tmp_path))
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


def waiting(runtime: Runtime) -> PendingWrites:
    return PendingWrites(runtime.home.state, runtime.settings)


def use(runtime: Runtime, tool: str, caller: Caller | None = None, **arguments: Any) -> dict[str, Any]:
    caller = caller or Caller(theme="ops", session_id="s1", marks={"context": "cron"})
    answer: dict[str, Any] = json.loads(toolset.call(runtime, tool, arguments, caller))
    return answer


def rows(runtime: Runtime) -> list[Any]:
    assert runtime.writer.flush(20)
    with psycopg.connect(runtime.database.dsn) as connection:
        return connection.execute("select id, agent_identity, content, metadata from memory_entries").fetchall()


@pytest.mark.parametrize("value", [False, None, "off", "", 0, "no", 1])
def test_writes_are_made_at_once_where_the_gate_is_off(start: Callable[..., Runtime], value: Any) -> None:
    runtime = start(value)
    assert use(runtime, "remember", content=FACT)["status"] == "accepted"
    assert waiting(runtime).ids() == []


@pytest.mark.parametrize("value", [True, "on", "YES", "approve"])
def test_a_write_waits_and_is_approved_as_it_was_made(start: Callable[..., Runtime], value: Any) -> None:
    runtime = start(value)
    answer = use(runtime, "remember", content=FACT, target="user", metadata={"ticket": 7})
    assert (answer["status"], answer["staged"], answer["theme"]) == ("waits for approval", True, "ops")
    assert "until a person approves it" in answer["note"]
    assert rows(runtime) == []
    (write,) = waiting(runtime).all()
    assert write.id == answer["pending_id"]
    assert write.preview == f'remember (user): {FACT}\nmetadata: {{"ticket": 7}}'
    toolset.approve(runtime, write)
    ((_, theme, content, metadata),) = rows(runtime)
    assert (theme, content) == ("ops", FACT)
    assert metadata.pop("saves")
    assert metadata == {"ticket": 7, "origin": "remember", "session_id": "s1", "context": "cron"}


def test_an_entry_is_forgotten_only_if_it_is_still_the_one_that_was_shown(start: Callable[..., Runtime]) -> None:
    runtime = start()
    runtime.accept(Add(theme="ops", target="memory", content=FACT, metadata={"origin": "remember"}))
    ((number, *_),) = rows(runtime)
    assert use(runtime, "forget", id=number)["staged"]
    assert len(rows(runtime)) == 1
    (write,) = waiting(runtime).all()
    assert write.preview == f"forget entry {number} (memory): {FACT}"
    with psycopg.connect(runtime.database.dsn, autocommit=True) as connection:
        connection.execute("update memory_entries set content = 'Something else.'")
    with pytest.raises(Refused, match="something else than was shown"):
        toolset.approve(runtime, write)
    with psycopg.connect(runtime.database.dsn, autocommit=True) as connection:
        connection.execute("update memory_entries set content = %s", (FACT,))
    assert toolset.approve(runtime, write)["status"] == "forgotten"
    assert rows(runtime) == []


@pytest.mark.parametrize(
    ("tool", "name", "extra", "line"),
    [("update", "id", {}, "update (memory)"), ("remember", "supersedes", {"tags": ["db"]}, "remember (memory)")],
)
def test_a_correction_shows_the_old_text_and_waits(
    start: Callable[..., Runtime], tool: str, name: str, extra: dict[str, Any], line: str
) -> None:
    runtime = start()
    runtime.accept(Add(theme="ops", target="memory", content=FACT, metadata={"origin": "remember"}))
    ((number, *_),) = rows(runtime)
    correction = {name: number, "content": "It listens on 5434.", "expires": "14d", **extra}
    assert use(runtime, tool, None, **correction)["staged"]
    assert [content for _, _, content, _ in rows(runtime)] == [FACT]
    (write,) = waiting(runtime).all()
    assert write.preview.splitlines()[:2] == [f"{line}: It listens on 5434.", "expires: 14d"]
    assert write.preview.splitlines()[-1] == f"in place of entry {number}: {FACT}"
    toolset.approve(runtime, write)
    assert [content for _, _, content, _ in rows(runtime)] == ["It listens on 5434."]


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("remember", {"content": "  "}, "content is missing or empty"),
        ("remember", {"content": FACT, "metadata": {"origin": "me"}}, "metadata may not hold origin"),
        ("remember", {"content": FACT, "target": "me"}, "target is 'me'"),
        ("forget", {}, "id is missing"),
        ("forget", {"id": 999}, "has no such entry"),
        ("forget", {"id": (1 << 63) - 1}, "has no such entry"),
    ],
)
def test_a_wrong_call_is_refused_now_and_not_when_it_is_approved(
    start: Callable[..., Runtime], tool: str, arguments: dict[str, Any], said: str
) -> None:
    runtime = start()
    assert runtime.wait_ready(20)
    assert said in use(runtime, tool, **arguments)["error"]
    assert waiting(runtime).ids() == []


def test_nothing_waits_that_may_not_be_stored(start: Callable[..., Runtime]) -> None:
    runtime = start()
    off = Caller(theme="ops", off_record=True)
    ruled = Caller(theme="ops", refusal=lambda content: f"rule 1 forbids {len(content)} characters")
    assert "off the record" in use(runtime, "remember", off, content=FACT)["error"]
    assert (
        use(runtime, "remember", ruled, content="secret")["error"]
        == "nothing is stored, because rule 1 forbids 6 characters"
    )
    assert waiting(runtime).ids() == []


def test_a_configuration_that_cannot_be_read_lets_no_write_through(
    start: Callable[..., Runtime], tmp_path: Path
) -> None:
    runtime = start()
    (tmp_path / "config.yaml").write_text("memory: {write_approval: [")
    assert "config.yaml cannot be read" in use(runtime, "remember", content=FACT)["error"]
    assert (rows(runtime), waiting(runtime).ids()) == ([], [])


def test_without_a_database_a_fact_waits_and_an_approved_one_is_in_the_outbox(start: Callable[..., Runtime]) -> None:
    runtime = start(dsn="postgresql://x@127.0.0.1:1/x", connect_timeout_s=0.5, recall_budget_s=0.5)
    use(runtime, "remember", content=FACT)
    (write,) = waiting(runtime).all()
    assert toolset.approve(runtime, write)["status"] == "accepted"
    assert runtime.writer.counters.accepted == 1
    with pytest.raises(Unavailable):
        toolset.approve(runtime, _forgetting(runtime))


def _forgetting(runtime: Runtime) -> Any:
    name = waiting(runtime).add("forget", {"id": 1}, theme="ops", session_id="", marks={}, preview="forget entry 1")
    return waiting(runtime).find(name)
