"""The tools by whose results an answer was made are told from those that only repeat what the agent has."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_memory_pgvector.hosts.tool_calls import ANSWERS_MAX, OWN, TOOLS_MAX, tools_by_answer, tools_of_turn
from hermes_memory_pgvector.settings import Settings
from hermes_memory_pgvector.tools.schemas import every_schema


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(*names: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name}} for name in names]}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


RESULT = {"role": "tool", "content": "a page"}
TRANSCRIPT = [
    user("first"), calls("web_search", "memory"), RESULT, calls("web_search"), RESULT, answer("one"),
    user("second"), calls("memory"), RESULT, answer("two"),
    user("third"), calls("mcp_mail_read"), RESULT, user("[System: go on]"), answer("three"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("question", "tools"),
    [("first", ["web_search"]), ("second", []), ("third", ["mcp_mail_read"]), ("rewritten", ["mcp_mail_read"])],
)
def test_the_tools_of_a_turn_are_found_by_its_question_or_at_the_end(question: str, tools: list[str]) -> None:
    assert tools_of_turn(TRANSCRIPT, question) == tools


def test_the_tools_of_each_answer_are_told() -> None:
    recorded = [
        {**message, "tool_calls": json.dumps(message["tool_calls"])} if "tool_calls" in message else message
        for message in TRANSCRIPT
    ]
    expected = {"one": ["web_search"], "three": ["mcp_mail_read"]}
    assert tools_by_answer(TRANSCRIPT) == tools_by_answer(recorded) == expected


def test_what_is_told_is_bounded() -> None:
    long = [each for n in range(300) for each in (user(f"q{n}"), calls(f"t{n}"), RESULT, answer(f"a{n}"))]
    assert list(tools_by_answer(long)) == [f"a{n}" for n in range(300 - ANSWERS_MAX, 300)]
    many = [user("q"), calls(*(f"{n}{'x' * 200}" for n in range(50))), RESULT, answer("a")]
    assert len(tools_of_turn(many, "q")) == TOOLS_MAX
    assert max(map(len, tools_of_turn(many, "q"))) == 64


@pytest.mark.parametrize(
    "wrong", ["", "{", "[1]", 7, [{"function": None}], [{}], {"a": 1}, [{"function": {"name": ""}}]]
)
def test_damaged_calls_tell_nothing(wrong: object) -> None:
    assert tools_of_turn([user("q"), {"role": "assistant", "tool_calls": wrong}, answer("a")], "q") == []


def test_the_tools_of_this_memory_are_the_agents_own() -> None:
    assert {schema["name"] for schema in every_schema(Settings())} <= OWN
