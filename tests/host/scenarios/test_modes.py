"""What the settings offer an agent: memories before a turn, tools, or both; and tools to look after the memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hostrig.hermes import Hermes
from hostrig.marks import one_server
from hostrig.model import Call, ModelEndpoint
from hostrig.rows import Rows

pytestmark = one_server

FACT = "The staging database listens on port 5433 of alpha."
QUESTION = "On which port of alpha does the staging database listen?"
RECALL = {"recall_memory", "recall_conversation"}
CARE = {"remember", "update", "forget", "list_memories"}


@pytest.mark.parametrize(
    ("mode", "tools", "names"),
    [
        pytest.param("hybrid", "recall", RECALL, marks=pytest.mark.main_host("b")),
        pytest.param("context", "all", set(), marks=pytest.mark.main_host("b")),
        pytest.param("tools", "all", RECALL | CARE, marks=pytest.mark.main_host("a")),
    ],
)
def test_the_mode_decides_what_the_agent_gets(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows, mode: str, tools: str, names: set[str]
) -> None:
    hermes = make_hermes(recall_mode=mode, tools=tools)
    other = hermes.elsewhere()
    other.write("memory", [FACT])
    other.ask("Please remember well what stands in your notes, and say nothing more")
    rows.wait(lambda rows: rows.entries() == [FACT], timeout_s=10)
    hermes.ask(QUESTION)
    request = model.requests[-1]
    assert set(request.tools) & (RECALL | CARE) == names
    assert bool(request.recalled) == (mode != "tools")
    asked = [("get_tool_schemas", [], {}), ("system_prompt_block", [], {})]
    begin = ("initialize", ["s"], {"hermes_home": str(hermes.home), "platform": "cli"})
    before, silent, _, after, prompt, again = hermes.hooks(*asked, begin, *asked, ("system_prompt_block", [], {}))
    assert {schema["name"] for schema in before} == names
    assert before == after, "hosts ask for the tools before they initialize the provider"
    assert silent == ""
    assert prompt == again
    assert {name for name in RECALL | CARE if name in prompt} == names


@pytest.mark.main_host("a")
def test_an_agent_remembers_lists_and_forgets(
    make_hermes: Callable[..., Hermes], model: ModelEndpoint, rows: Rows
) -> None:
    hermes = make_hermes(tools="all")
    answers: list[dict[str, Any]] = []

    def script(request: Any) -> Call | str:
        answers[:] = [json.loads(result) for result in request.results]
        match len(answers):
            case 0:
                return Call("remember", {"content": FACT, "metadata": {"ticket": 7}, "sync": True})
            case 1:
                return Call("list_memories", {})
            case 2:
                return Call("forget", {"id": answers[1]["entries"][0]["id"]})
        return "All of it is done now, and nothing else has changed."

    model.script = script
    hermes.ask("Please try out your memory as we discussed, and tell me when it is done")
    stored, listed, forgotten = answers
    assert stored["status"] == "stored"
    assert [entry["content"] for entry in listed["entries"]] == [FACT]
    assert (forgotten["status"], forgotten["content"]) == ("forgotten", FACT)
    assert rows.entries() == hermes.entries("memory") == []
