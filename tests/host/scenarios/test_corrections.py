"""A model remembers for a time and with tags, updates and supersedes by tools; later recalls show what is true now."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint, Request
from hostrig.rows import Rows

pytestmark = one_server

FACT = "The staging database listens on port 5433 of alpha."
MOVED = "The staging database listens on port 5440 of alpha."
GONE = "The staging database was moved to beta, port 6000."
BADGE = "The badge for the staging room is 4711 until Friday."
ASKED = "Please look after the memory as we discussed, and tell me when it is done"
QUESTION = "On which port does the staging database listen?"
Step = Callable[[list[dict[str, Any]]], Call]


def working_through(*steps: Step, answers: list[dict[str, Any]]) -> Callable[[Request], Call | str]:
    """A script that makes one call after the other, each with the answers of those before it."""

    def script(request: Request) -> Call | str:
        answers[:] = [json.loads(result) for result in request.results]
        return steps[len(answers)](answers) if len(answers) < len(steps) else "All of it is done now."

    return script


def remember(content: str, **more: Any) -> Step:
    return lambda _: Call("remember", {"content": content, "sync": True, **more})


def recall(tool: str = "recall_memory", **more: Any) -> Step:
    return lambda _: Call(tool, {"query": "staging database port badge", **more})


def contents(answer: dict[str, Any]) -> list[str]:
    return sorted(hit["content"] for hit in answer["hits"])


@pytest.fixture
def hermes(make_hermes: Callable[..., Hermes]) -> Hermes:
    return make_hermes(tools="all", prefetch_turns=False, min_similarity=-1)


def before_a_turn(hermes: Hermes, model: ModelEndpoint) -> str:
    """The memories that a new session gets for the question."""
    model.reset()
    hermes.ask(QUESTION)
    return "".join(model.requests[0].recalled)


@pytest.mark.main_host("a")
def test_later_recalls_show_the_new_text_only(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    answers: list[dict[str, Any]] = []
    model.script = working_through(
        remember(FACT, tags=["Staging", "#db"]),
        lambda told: Call("update", {"id": told[0]["id"], "content": MOVED}),
        recall(),
        answers=answers,
    )
    hermes.ask(ASKED)
    assert (answers[1]["status"], answers[1]["tags"]) == ("stored", ["db", "staging"])
    assert contents(answers[2]) == [MOVED]
    block = before_a_turn(hermes, model)
    assert (MOVED in block, FACT in block, "tags db staging" in block) == (True, False, True)

    model.script = working_through(remember(GONE, supersedes=answers[1]["id"]), recall(), answers=answers)
    hermes.ask(ASKED)
    assert contents(answers[1]) == [GONE]
    block = before_a_turn(hermes, model)
    assert [text in block for text in (GONE, MOVED, FACT)] == [True, False, False]
    assert [row.content for row in rows("SELECT content FROM memory_history ORDER BY id")] == [FACT, MOVED]
    (past,) = rows("SELECT id FROM memory_history WHERE content = %s", FACT)
    undone = hermes.run("undo", str(past.id), program="hermes-pgvector")
    assert (undone.returncode, f"in place of: {GONE}" in undone.stdout) == (0, True), undone.stderr
    assert rows.entries() == [FACT]
    assert hermes.complaints() == []


@pytest.mark.slow
def test_an_expired_entry_is_recalled_nowhere(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    answers: list[dict[str, Any]] = []
    model.script = working_through(remember(BADGE, expires="3 days"), remember(FACT), recall(), answers=answers)
    hermes.ask(ASKED)
    assert contents(answers[2]) == sorted([BADGE, FACT])
    assert ", expires 20" in before_a_turn(hermes, model)
    with psycopg.connect(rows.dsn) as connection:
        connection.execute("UPDATE memory_entries SET expires_at = now() WHERE content = %s", [BADGE])
    block = before_a_turn(hermes, model)
    assert (FACT in block, BADGE in block) == (True, False)
    model.script = working_through(recall(), lambda _: Call("list_memories", {}), answers=answers)
    hermes.ask(ASKED)
    assert contents(answers[0]) == [FACT]
    assert [entry["content"] for entry in answers[1]["entries"]] == [FACT]
    assert rows.entries() == [BADGE, FACT], "the upkeep deletes it later"


@pytest.mark.slow
def test_both_recall_tools_find_by_tags(hermes: Hermes, model: ModelEndpoint, rows: Rows) -> None:
    answers: list[dict[str, Any]] = []
    hermes.ask("Another session about the staging database, in which nothing is remembered by a tool")
    model.script = working_through(
        remember(FACT, tags=["db"]), remember(BADGE, tags=["db", "door"]), remember(GONE), answers=answers
    )
    hermes.ask("In this session the port of the staging database is remembered, please")
    rows.wait(lambda rows: len(rows.turns()) == 4)
    model.script = working_through(
        recall(tags=["DB"]),
        recall(tags=["db", "door"], all_tags=True),
        recall("recall_conversation", tags=["door"]),
        answers=answers,
    )
    hermes.ask(ASKED)
    assert contents(answers[0]) == sorted([FACT, BADGE])
    assert contents(answers[1]) == [BADGE]
    assert {hit["session_id"] for hit in answers[2]["hits"]} == {hermes.sessions()[1]}


def test_an_entry_of_memory_md_is_changed_by_the_hosts_own_tool(
    hermes: Hermes, model: ModelEndpoint, rows: Rows
) -> None:
    answers: list[dict[str, Any]] = []
    add = Call("memory", {"action": "add", "target": "memory", "content": FACT})

    def replace(_: list[dict[str, Any]]) -> Call:
        # One host calls it patch.
        known = model.requests[-1].tools["memory"]["properties"]["action"]["enum"]
        action = "patch" if "patch" in known else "replace"
        return Call("memory", {"action": action, "target": "memory", "old_text": FACT, "content": MOVED})

    model.script = working_through(
        lambda _: add,
        recall(),
        lambda told: Call("update", {"id": told[1]["hits"][0]["id"], "content": MOVED}),
        replace,
        recall(),
        answers=answers,
    )
    hermes.ask(ASKED)
    assert "stands in MEMORY.md: change it there with the memory tool" in answers[2]["error"]
    assert contents(answers[4]) == [MOVED]
    assert hermes.entries("memory") == rows.entries() == [MOVED]
    assert [row.content for row in rows("SELECT content FROM memory_history")] == [FACT]
