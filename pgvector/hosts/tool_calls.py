"""The tools by whose results an answer was made, as the host's transcript tells. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import runtime_messages
from .transcript import text_of

MESSAGES_MAX, TOOLS_MAX, NAME_CHARS_MAX = 2000, 8, 64
# Of so many answers of a transcript the tools are told: metadata is bounded.
ANSWERS_MAX = 100
# Tools whose results hold nothing but what the agent or its user has said or written. Of any other tool, such as one of
# an MCP server, a result may be by anybody.
OWN = frozenset({
    "memory", "recall_memory", "recall_conversation", "list_memories", "remember", "update", "forget", "memory_write",
    "memory_search", "memory_tick", "memory_status", "memory_reflect", "memory_export", "memory_purge",
    "memory_optimize", "session_search", "todo", "todo_list", "clarify", "write_file", "patch", "text_to_speech",
    "image_generate", "cronjob", "cronjob_manage", "skills_list", "close_terminal", "send_message",
})  # fmt: skip


def told_of_turn(messages: Sequence[Mapping[str, Any]], question: str) -> dict[str, Any]:
    """What a transcript tells of a turn: the `kind` of its question, if no person wrote it, and its `tools`."""
    kind = runtime_messages.recorded_kind(messages, question)
    return {"kind": kind, "tools": tools_of_turn(messages, question)}


def tools_of_turn(messages: Sequence[Mapping[str, Any]], question: str) -> list[str]:
    """The tools of a turn whose results may come from outside, in their order.

    It is the last turn of the transcript with this question, or without one the last turn.
    """
    turn: list[Mapping[str, Any]] = []
    last: list[Mapping[str, Any]] | None = None
    for message in reversed(messages[-MESSAGES_MAX:]):
        if not _begins_turn(message):
            turn.append(message)
        elif message.get("content") == question:
            return _outside(reversed(turn))
        else:
            last, turn = last or turn, []
    return _outside(reversed(last or turn))


def tools_by_answer(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The tools from outside by whose results the newest ANSWERS_MAX of such answers were made, by the answers."""
    found: dict[str, list[str]] = {}
    turn: list[Mapping[str, Any]] = []
    for message in messages:
        if _begins_turn(message):
            turn.clear()
        turn.append(message)
        if message.get("role") == "assistant" and not message.get("tool_calls") and (tools := _outside(turn)):
            found[text_of(message.get("content"))] = tools
    return dict(list(found.items())[-ANSWERS_MAX:])


def _begins_turn(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "user" and not runtime_messages.is_inserted(text_of(message.get("content")))


def _outside(turn: Iterable[Mapping[str, Any]]) -> list[str]:
    calls = (name for message in turn for name in _names(message.get("tool_calls")))
    return [name[:NAME_CHARS_MAX] for name in dict.fromkeys(calls) if name not in OWN][:TOOLS_MAX]


def _names(calls: Any) -> list[str]:
    """The names of the tools of a message's calls, which the host's record has as JSON."""
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except (ValueError, RecursionError):
        return []
    functions = [call.get("function") for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    return [str(function["name"]) for function in functions if isinstance(function, Mapping) and function.get("name")]
