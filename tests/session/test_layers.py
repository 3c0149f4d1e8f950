"""Themes that are read or written beside the own one, where the operator lists them and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import not_on_citus
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logins import with_and_without_row_security
from loopback import Endpoint
from statements import counted

from hermes_memory_pgvector.errors import BadArgument
from hermes_memory_pgvector.model import Add, Caller, RecallRequest, TurnTaken
from hermes_memory_pgvector.recall import render
from hermes_memory_pgvector.runtime import Runtime, acquire, release
from hermes_memory_pgvector.session import scopes
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools import toolset
from hermes_memory_pgvector.tools.schemas import schemas

PERSON, ROOM = "dm-telegram-0123456789abcdef", "group-telegram-0123456789abcdef"
WORDS = "the door code of the workshop is 4711"
POLICY: dict[str, Any] = {
    "also_recall": {"ops": ["house"], "dm-*": ["house"]}, "also_write": {"ops": ["House", "board"]}, "tools": "all",
}  # fmt: skip
EVERY = ("ops", "house", "board", "red", PERSON, ROOM, "bench-x")


@pytest.fixture
def start(tmp_path: Path, agents_database: str, endpoint: Endpoint) -> Iterator[Callable[..., Runtime]]:
    running: list[Runtime] = []

    def make(**changed: Any) -> Runtime:
        values = {
            "dsn": agents_database, "embed_url": endpoint.url, "embed_model": "test", "batch_linger_s": 0,
            "cross_theme_recall": "none", **POLICY, **changed,
        }  # fmt: skip
        running.append(acquire(Settings(**values), tmp_path))
        assert running[-1].wait_ready(20)
        return running[-1]

    yield make
    for runtime in running:
        release(runtime)


@pytest.fixture
def runtime(start: Callable[..., Runtime]) -> Runtime:
    """A memory with an entry and a turn in every theme."""
    opened = start()
    for theme in EVERY:
        assert opened.accept(Add(theme=theme, target="memory", content=f"{WORDS}, as is known in {theme}"))
        assert opened.accept(TurnTaken(theme=theme, session_id="s", user=f"{WORDS}, said in {theme}", assistant=""))
    assert opened.writer.flush(20)
    return opened


def call(runtime: Runtime, tool: str, theme: str = "ops", /, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(toolset.call(runtime, tool, arguments, Caller(theme=theme, session_id="s")))
    return answer


def read(runtime: Runtime, theme: str = "ops", /, **arguments: Any) -> set[str]:
    """The themes of all hits of both tools; an error has none."""
    answers = [
        call(runtime, tool, theme, query=WORDS, **arguments) for tool in ("recall_memory", "recall_conversation")
    ]
    return {hit["theme"] for answer in answers for hit in answer.get("hits", ())}


def test_a_listed_theme_is_recalled_before_a_turn_and_by_the_tools_and_is_labelled(runtime: Runtime) -> None:
    recall = runtime.prefetch.before_turn("ops", WORDS, "another")
    assert {hit.theme for hit in recall.hits} == {"ops", "house"}
    block = render.block(recall, chars_max=2000, query=WORDS, own=runtime.own("ops"))
    heading, *bullets = block.splitlines()
    assert heading.startswith("Memories of theme ops that may help")
    assert {("house" in line, ", theme house]" in line) for line in bullets} == {(True, True), (False, False)}
    for scope in ("", "current", "all"):
        assert read(runtime, scope=scope) == {"ops", "house"}
    assert read(runtime, scope="house") == {"house"}
    assert read(runtime, scope="session") == {"ops"}
    assert read(runtime, PERSON) == {PERSON, "house"}


def test_a_theme_that_is_not_listed_is_never_read_whatever_a_scope_says(runtime: Runtime) -> None:
    for theme in ("red", "house", ROOM, "bench-x"):
        assert read(runtime, theme) == {theme}
        assert {hit.theme for hit in runtime.prefetch.before_turn(theme, WORDS, "another").hits} == {theme}
    for scope in ("red", "board", PERSON, "*", "house,red", '["red"]', "dm-*", "RED", "bench-x"):
        assert read(runtime, scope=scope) <= {"ops", "house"}


def test_the_same_text_in_two_layers_is_one_hit(runtime: Runtime) -> None:
    fact = "the boiler is serviced every autumn"
    for theme in ("ops", "house"):
        assert runtime.accept(Add(theme=theme, target="memory", content=fact))
    assert runtime.writer.flush(20)
    assert [hit["content"] for hit in call(runtime, "recall_memory", query=fact)["hits"]].count(fact) == 1
    block = render.block(runtime.prefetch.before_turn("ops", fact, "another"), chars_max=2000, own=("ops",))
    assert block.count(fact) == 1


@with_and_without_row_security
@not_on_citus.per_theme
def test_layers_add_no_statement_to_a_recall(
    runtime: Runtime, start: Callable[..., Runtime], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, needed = start(also_recall={}), []
    for opened in (alone, runtime):
        for recall in (
            lambda opened=opened: opened.prefetch.before_turn("ops", WORDS, "another"),
            lambda opened=opened: call(opened, "recall_memory", query=WORDS),
            lambda opened=opened: call(opened, "recall_conversation", query=WORDS, context=1),
        ):
            recall()  # The first use of a connection registers types.
            with counted(monkeypatch) as statements:
                recall()
            needed.append(statements[0])
    assert needed[:3] == needed[3:]
    assert min(needed) >= 4


def test_remember_writes_a_listed_theme_and_no_other(runtime: Runtime) -> None:
    def kept(fact: str, **arguments: Any) -> str:
        answer = call(runtime, "remember", content=fact, sync=True, **arguments)
        return str(answer.get("theme") or answer["error"])

    assert kept("the ladder is in the attic") == "ops"
    assert kept("the ladder is in the cellar", theme="") == "ops"
    assert kept("the ladder is in the house", theme=" HOUSE ") == "house"
    assert kept("the ladder is on the board", theme="board") == "board"
    assert kept("the ladder is in ops", theme="ops") == "ops"
    for name in ("red", PERSON, PERSON.upper(), ROOM, "bench-x", "*", "house,red", "current", "all", "default"):
        assert "may not be written from here; leave it out, or use house, board" in kept("planted", theme=name)
    for value in (["house"], {"house": 1}, 1, True):
        assert "theme is a" in kept("planted", theme=value)
    assert "leave it out" in call(runtime, "remember", "red", content="planted", theme="house")["error"]
    found = call(runtime, "recall_memory", query="where is the ladder")["hits"]
    assert {hit["theme"] for hit in found if "ladder" in hit["content"]} == {"ops", "house"}
    assert not any("planted" in hit["content"] for hit in found)


@pytest.mark.parametrize(("theme", "is_read"), [("house", True), ("board", False)])
def test_only_an_entry_of_a_theme_that_may_be_read_can_be_superseded(
    runtime: Runtime, theme: str, *, is_read: bool
) -> None:
    kept = call(runtime, "remember", theme, content="the ladder is in the attic", tags=["secret"], sync=True)
    answer = call(runtime, "remember", content="the ladder is sold", theme=theme, supersedes=kept["id"], sync=True)
    if is_read:
        assert (answer["replaces"], answer["tags"]) == (kept["id"], ["secret"])
    else:
        assert answer == {"error": f"supersedes is {kept['id']}; the memory of theme board has no such entry"}
        assert kept["id"] in [entry["id"] for entry in call(runtime, "list_memories", theme)["entries"]]


@with_and_without_row_security
@pytest.mark.parametrize("tool", ["remember", "forget", "list_memories", "recall_memory", "recall_conversation"])
def test_no_argument_of_a_tool_reaches_a_theme_that_is_not_listed(
    runtime: Runtime, tool: str, start: Callable[..., Runtime]
) -> None:
    needed: dict[str, Any] = {"remember": {"content": "planted"}, "forget": {"id": 1}}.get(tool, {})
    needed = {**needed, **({"query": WORDS} if tool.startswith("recall") else {})}
    names = ("theme", "themes", "agent_identity", "own", "also_recall", "also_write", "account", "person", "scope")
    offered = {schema["name"]: schema for schema in schemas(runtime.settings)}[tool]["parameters"]["properties"]
    for name in names:
        for value in ("red", ["red"], {"ops": ["red"]}):
            answer = call(runtime, tool, **{**needed, name: value})
            assert "error" in answer
            if name not in offered:
                assert "unknown argument" in answer["error"]
    metadata = {"theme": "red", "agent_identity": "red"}
    assert call(runtime, "remember", content="planted in its own theme", metadata=metadata)["theme"] == "ops"
    assert (
        "linked_account" in call(runtime, "remember", content="planted", metadata={"linked_account": PERSON})["error"]
    )
    unlisted = start(also_write={})
    assert "unknown argument 'theme'" in call(unlisted, "remember", content="planted", theme="house")["error"]


@given(st.text() | st.sampled_from([*EVERY, "House", "ｈｏｕｓｅ", "ho\u200buse"]), st.sampled_from(EVERY))
def test_only_listed_names_are_writable(name: str, theme: str) -> None:
    settings = Settings(also_write={"ops": ["house", PERSON, ROOM, "bench-x"]})
    try:
        found = scopes.writable(theme, name, settings)
    except BadArgument:
        return
    assert found == theme or (theme, found) == ("ops", "house")


def test_a_rule_opens_no_person_room_or_benchmark_and_no_theme_that_is_not_allowed() -> None:
    rules = {"*": [PERSON, ROOM, "bench-x", "house", "board", "ops"]}
    settings = Settings(also_recall=rules, allowed_themes=["ops", "house"])
    assert scopes.layered("ops", rules, settings) == ("house",)
    assert scopes.layered(PERSON, rules, settings) == ("house", "ops")
    assert scopes.layered("bench-x", rules, settings) == ()


def test_a_recall_of_one_theme_names_no_layer(runtime: Runtime) -> None:
    request = RecallRequest(query=WORDS, scope=runtime.scope("red", "current", ""), limit=5, budget_s=5)
    assert scopes.read_unasked("red", runtime.settings) == ("red",)
    assert {hit.theme for hit in runtime.recall("entries", request).hits} == {"red"}
