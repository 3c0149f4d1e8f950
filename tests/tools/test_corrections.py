"""What an agent says to change, what it is answered, and what it recalls afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from loopback import Endpoint
from waiting import wait_for

from hermes_memory_pgvector.model import Add, Caller, Replace, now
from hermes_memory_pgvector.recall import render
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset


@pytest.fixture
def start(tmp_path: Path, database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {
            "dsn": database, "embed_url": endpoint.url, "embed_model": "test", "recall_budget_s": 20, "tools": "all",
            "batch_linger_s": 0, **changed,
        }  # fmt: skip
        (tmp_path / "memories").mkdir(exist_ok=True)
        running.append(acquire(Settings(**values), tmp_path))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


@pytest.fixture
def runtime(start: Callable[..., Runtime]) -> Runtime:
    return start()


def use(runtime: Runtime, tool: str, theme: str = "ops", **arguments: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(toolset.call(runtime, tool, arguments, Caller(theme=theme, session_id="s1")))
    return value


def remember(runtime: Runtime, content: str, **arguments: Any) -> dict[str, Any]:
    answer = use(runtime, "remember", content=content, sync=True, **arguments)
    assert answer.get("status") == "stored", answer
    return answer


def recalled(runtime: Runtime, **arguments: Any) -> set[str]:
    return {hit["content"] for hit in use(runtime, "recall_memory", query="kelp", **arguments)["hits"]}


def listed(runtime: Runtime) -> list[str]:
    return [entry["content"] for entry in use(runtime, "list_memories")["entries"]]


def test_an_updated_text_is_recalled_and_the_old_one_is_not(runtime: Runtime) -> None:
    first = remember(runtime, "kelp is red", tags=["Sea", "#plants"], expires="14d")
    assert first["tags"] == ["plants", "sea"]
    answer = use(runtime, "update", id=first["id"], content="kelp is green")
    assert (answer["status"], answer["replaces"], answer["tags"]) == ("stored", first["id"], ["plants", "sea"])
    assert answer["expires"] == first["expires"]
    (hit,) = use(runtime, "recall_memory", query="kelp")["hits"]
    assert (hit["id"], hit["content"], hit["tags"], hit["expires"]) == (
        answer["id"], "kelp is green", ["plants", "sea"], first["expires"]
    )  # fmt: skip
    found = runtime.prefetch.before_turn("ops", "kelp", "another")
    assert ", tags plants sea, expires 20" in render.block(found, chars_max=500)
    again = use(runtime, "update", id=first["id"], content="kelp is blue")
    assert again["error"] == f"id is {first['id']}; entry {answer['id']} has replaced it: recall it, then give its id"


def test_an_update_says_what_becomes_of_tags_and_expiry(runtime: Runtime) -> None:
    first = remember(runtime, "kelp", tags=["sea"], expires="2 weeks")
    assert use(runtime, "update", id=first["id"], content="kelp") == {
        "status": "unchanged", "id": first["id"], "theme": "ops"
    }  # fmt: skip
    answer = use(runtime, "update", id=first["id"], content="kelp", tags=[], expires="never")
    assert ("tags" in answer, "expires" in answer) == (False, False)
    (entry,) = use(runtime, "list_memories")["entries"]
    assert ("tags" in entry, "expires" in entry, entry["id"]) == (False, False, answer["id"])


def test_what_is_superseded_leaves_recall(runtime: Runtime) -> None:
    first = remember(runtime, "kelp is red", tags=["sea"])
    answer = remember(runtime, "kelp is green", supersedes=first["id"])
    assert (answer["replaces"], answer["tags"]) == (first["id"], ["sea"])
    assert recalled(runtime) == {"kelp is green"}
    assert listed(runtime) == ["kelp is green"]


@pytest.mark.parametrize("tool", ["update", "remember"])
def test_an_entry_of_another_theme_is_an_unknown_one(start: Callable[..., Runtime], tool: str) -> None:
    runtime = start(cross_theme_recall="all")
    number = remember(runtime, "kelp", theme="billing")["id"]
    name = "id" if tool == "update" else "supersedes"
    unknown, foreign = (
        use(runtime, tool, content="stolen", **{name: asked})["error"].replace(str(asked), "N")
        for asked in (number + 1, number)
    )
    assert unknown == foreign == f"{name} is N; the memory of theme ops has no such entry"
    assert listed(runtime) == []
    assert recalled(runtime, scope="billing") == {"kelp"}


@pytest.mark.parametrize("tool", ["update", "remember"])
def test_an_entry_of_a_memory_file_is_to_be_changed_there(runtime: Runtime, tool: str) -> None:
    file = runtime.home.path / "memories" / "MEMORY.md"
    file.write_text("kelp is red", encoding="utf-8")
    runtime.accept(Add(theme="ops", home=runtime.home.id, target="memory", content="kelp is red"))
    (entry,) = use(runtime, "list_memories")["entries"]
    name = "id" if tool == "update" else "supersedes"
    answer = use(runtime, tool, content="kelp is green", **{name: entry["id"]})
    assert "stands in MEMORY.md: change it there with the memory tool" in answer["error"]
    assert listed(runtime) == ["kelp is red"]
    # What the host's tool then does.
    file.write_text("kelp is green", encoding="utf-8")
    common: Any = {"theme": "ops", "home": runtime.home.id, "target": "memory"}
    runtime.files.change(Replace(content="kelp is green", previous="kelp is red", **common))
    assert listed(runtime) == ["kelp is green"]


def test_a_file_that_the_host_does_not_use_does_not_count(runtime: Runtime) -> None:
    (runtime.home.path / "memories" / "MEMORY.md").write_text("kelp is red", encoding="utf-8")
    (runtime.home.path / "config.yaml").write_text("memory: {memory_enabled: false}", encoding="utf-8")
    runtime.accept(Add(theme="ops", home=runtime.home.id, target="memory", content="kelp is red"))
    (entry,) = use(runtime, "list_memories")["entries"]
    assert use(runtime, "update", id=entry["id"], content="kelp is green")["status"] == "stored"


def test_an_entry_of_another_hosts_file_is_changed_and_the_model_is_told(runtime: Runtime) -> None:
    runtime.accept(Add(theme="ops", home="elsewhere", target="memory", content="kelp is red"))
    (entry,) = use(runtime, "list_memories")["entries"]
    answer = use(runtime, "update", id=entry["id"], content="kelp is green")
    assert "another host has the old text" in answer["note"]
    assert listed(runtime) == ["kelp is green"]


def test_expired_entries_are_neither_recalled_nor_listed_nor_changed(runtime: Runtime) -> None:
    number = remember(runtime, "kelp is red", expires="12h")["id"]
    remember(runtime, "kelp is green")
    with psycopg.connect(runtime.database.dsn) as connection:
        connection.execute("update memory_entries set expires_at = now() where id = %s", [number])
    assert recalled(runtime) == {"kelp is green"}
    assert [hit.content for hit in runtime.prefetch.before_turn("ops", "kelp", "s").hits] == ["kelp is green"]
    answer = use(runtime, "list_memories")
    assert (answer["counts"]["memory"], len(answer["entries"])) == (1, 1)
    assert "no such entry" in use(runtime, "update", id=number, content="x")["error"]
    assert "already_there" not in remember(runtime, "kelp is red"), "an expired text is not there"
    assert recalled(runtime) == {"kelp is red", "kelp is green"}


def test_remembering_again_gives_tags_and_expiry_to_what_is_there(runtime: Runtime) -> None:
    first = remember(runtime, "kelp")
    again = remember(runtime, "kelp", tags=["sea"], expires="1d")
    assert (again["id"], again["already_there"], again["tags"]) == (first["id"], True, ["sea"])
    kept = remember(runtime, "kelp")
    assert (kept["tags"], kept["expires"]) == (["sea"], again["expires"])


def test_both_recall_tools_and_the_list_filter_by_tags(runtime: Runtime) -> None:
    remember(runtime, "kelp is red", tags=["sea"])
    remember(runtime, "kelp is green", tags=["sea", "north"])
    remember(runtime, "kelp is blue")
    assert recalled(runtime, tags=["SEA"]) == {"kelp is red", "kelp is green"}
    assert recalled(runtime, tags="north, lake") == {"kelp is green"}
    assert recalled(runtime, tags=["sea", "north"], all_tags=True) == {"kelp is green"}
    assert recalled(runtime, tags=[]) == {"kelp is red", "kelp is green", "kelp is blue"}
    listing = use(runtime, "list_memories", tags=["north"])["entries"]
    assert [entry["content"] for entry in listing] == ["kelp is green"]
    with psycopg.connect(runtime.database.dsn) as connection:
        connection.execute(
            "insert into conversations (agent_identity, session_id, role, content, search) select 'ops', session, "
            "'user', 'kelp in ' || session, to_tsvector('english', 'kelp') from unnest(array['s1', 's2']) as session"
        )
    found = use(runtime, "recall_conversation", query="kelp", tags=["north"])["hits"]
    assert [hit["session_id"] for hit in found] == ["s1"], "the session in which it was remembered"


@pytest.mark.parametrize(
    ("tool", "arguments", "reason"),
    [
        ("remember", {"content": "a", "expires": "soon"}, "expires is 'soon'; it must be a time span like 14d"),
        ("remember", {"content": "a", "expires": "2020-01-01"}, "it must end between a minute and 3660 days from now"),
        ("remember", {"content": "a", "expires": 14}, "expires is a int; it must be a string"),
        ("remember", {"content": "a", "tags": [7]}, "it must be a list of strings"),
        ("remember", {"content": "a", "tags": ["x" * 65]}, "tags has a tag of 65 characters"),
        ("remember", {"content": "a", "supersedes": "first"}, "supersedes is 'first'; it must be a whole number"),
        ("update", {"id": 1, "content": " "}, "content is missing or empty"),
        ("update", {"content": "a"}, "id is missing"),
        ("recall_memory", {"query": "a", "tags": {"x": 1}}, "tags is a dict; it must be a list of strings"),
        ("recall_conversation", {"query": "a", "all_tags": "perhaps"}, "all_tags is 'perhaps'"),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_stored(
    runtime: Runtime, tool: str, arguments: dict[str, Any], reason: str
) -> None:
    assert reason in use(runtime, tool, **arguments)["error"]
    assert listed(runtime) == []


def test_a_correction_off_the_record_is_refused(runtime: Runtime) -> None:
    number = remember(runtime, "kelp")["id"]
    caller = Caller(theme="ops", off_record=True)
    answer = json.loads(toolset.call(runtime, "update", {"id": number, "content": "secret"}, caller))
    assert "off the record" in answer["error"]
    assert listed(runtime) == ["kelp"]


def test_corrections_wait_in_the_outbox_while_the_database_is_away(
    start: Callable[..., Runtime], make_database: Callable[..., str]
) -> None:
    runtime = start(dsn=(gone := make_database()), recall_budget_s=1, connect_timeout_s=0.5, retry_max_s=0.2)
    number = remember(runtime, "kelp is red")["id"]
    name = gone.split("dbname=")[1].split()[0]
    with psycopg.connect(gone.replace(name, "postgres"), autocommit=True) as connection:
        connection.execute(f"alter database {name} allow_connections false".encode())
        connection.execute("select pg_terminate_backend(pid) from pg_stat_activity where datname = %s", [name])
        answer = use(runtime, "update", id=number, content="kelp is green", expires="1d")
        later = use(runtime, "update", id=number, content="kelp is blue")
        missing = use(runtime, "update", id=number + 100, content="kelp is lost")
        assert [each["status"] for each in (answer, later, missing)] == ["accepted"] * 3
        assert answer["note"] == "the database does not answer, so the id was not checked"
        assert datetime.fromisoformat(answer["expires"]) - now() < timedelta(days=1)
        wait_for(lambda: name in runtime.writer.health.problem)
        connection.execute(f"alter database {name} allow_connections true".encode())
    assert runtime.writer.flush(20)
    assert listed(runtime) == ["kelp is blue"], "the second update finds the entry by its first id"
    (letter,) = runtime.dead_letters
    assert letter.reason == f"theme ops has no entry {number + 100} any more, so its new text is not stored"
    assert runtime.writer.counters.balanced
