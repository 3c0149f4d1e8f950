"""The tools by whose results an answer was made, as the host's transcript tells. Pure.

A tool of this memory counts as such a tool when it found a text of third parties, because the answer may repeat it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

from . import runtime_messages
from .provenance import LOCAL_TOOLS, REMOTE
from .transcript import is_summary, kept_with_summary, text_of

MESSAGES_MAX, TOOLS_MAX, NAME_CHARS_MAX = 2000, 8, 64
# Of so many answers of a transcript the tools are told: metadata is bounded.
ANSWERS_MAX = 100
# Tools whose results hold nothing but what the agent or its user has said or written. Of any other tool, such as one of
# an MCP server, a result may be by anybody.
OWN = frozenset({
    "memory", "recall_memory", "recall_conversation", "list_memories", "remember", "update", "forget", "memory_write",
    "memory_search", "memory_tick", "memory_status", "memory_reflect", "memory_export", "memory_purge",
    "memory_optimize", "todo", "todo_list", "clarify", "write_file", "patch", "text_to_speech",
    "image_generate", "cronjob", "cronjob_manage", "skills_list", "close_terminal", "send_message",
})  # fmt: skip
# The tools of this memory that answer with texts of many sources.
RECALLING = frozenset({"recall_memory", "recall_conversation", "list_memories"})
# In the place of tools that a compression took from the transcript. It counts as third parties.
COMPRESSED = "(compressed)"
_REMOTE_HIT = re.compile("|".join(f'"source": "{source}"' for source in sorted(REMOTE)))


def told_of_turn(messages: Sequence[Mapping[str, Any]], question: str) -> dict[str, Any]:
    """What a transcript tells of a turn: the `kind` of its question, if no person wrote it, and its `tools`."""
    kind = runtime_messages.recorded_kind(messages, question)
    return {"kind": kind, "tools": tools_of_turn(messages, question)}


def tools_of_turn(messages: Sequence[Mapping[str, Any]], question: str) -> list[str]:
    """The tools of a turn whose results may come from outside, at most TOOLS_MAX: first those of third parties.

    It is the last turn of the transcript with this question, or without one the last turn. COMPRESSED stands for tools
    that a compression may have taken from the transcript while the turn was running.
    """
    recent = messages[-MESSAGES_MAX:]
    newest_first = range(len(recent) - 1, -1, -1)
    asked = (
        place for place in newest_first if recent[place].get("content") == question and _begins_turn(recent[place])
    )
    begun = (place for place in newest_first if _begins_turn(recent[place]))
    start = next(chain(asked, begun), 0)
    before = filter(_is_summary, recent[max(0, start - 1) : start])
    rest = takewhile(lambda message: not _begins_turn(message), recent[start + 1 :])
    return _tools(chain(before, recent[start : start + 1], rest))


def tools_by_answer(messages: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The tools from outside by whose results the newest ANSWERS_MAX of such answers were made, by the answers."""
    found: dict[str, list[str]] = {}
    told, before = _Told(), None
    for message in messages:
        if _begins_turn(message):
            told = _Told()
            if before and _is_summary(before):
                told.add(before)
        told.add(message)
        before = message
        if message.get("role") == "assistant" and not message.get("tool_calls") and (tools := told.tools()):
            found[text_of(message.get("content"))] = tools
    return dict(list(found.items())[-ANSWERS_MAX:])


@dataclass(slots=True)
class _Told:
    """What messages of a turn tell of its tools: their names, and whether one of this memory found a remote hit."""

    names: dict[str, None] = field(default_factory=dict)
    recalls: set[str] = field(default_factory=set)
    repeats: bool = False

    def add(self, message: Mapping[str, Any]) -> None:
        """Read the next message of the turn."""
        if _is_summary(message):
            self.names[COMPRESSED] = None
        for name, number in _calls(message.get("tool_calls")):
            self.names[name] = None
            if name in RECALLING:
                self.recalls.add(number)
        if self.recalls and message.get("role") == "tool" and str(message.get("tool_call_id") or "") in self.recalls:
            self.repeats = self.repeats or bool(_REMOTE_HIT.search(text_of(message.get("content"))))

    def tools(self) -> list[str]:
        """The tools whose results may come from outside, those of third parties first."""
        wanted = (name for name in self.names if name not in OWN or (self.repeats and name in RECALLING))
        return sorted((name[:NAME_CHARS_MAX] for name in wanted), key=LOCAL_TOOLS.__contains__)[:TOOLS_MAX]


def _tools(turn: Iterable[Mapping[str, Any]]) -> list[str]:
    told = _Told()
    for message in turn:
        told.add(message)
    return told.tools()


def _begins_turn(message: Mapping[str, Any]) -> bool:
    if message.get("role") != "user":
        return False
    text = text_of(message.get("content"))
    if runtime_messages.is_inserted(text) or runtime_messages.is_left_by_compression(text):
        return False
    return not is_summary(message, text) or bool(kept_with_summary(text))


def _is_summary(message: Mapping[str, Any]) -> bool:
    """Whether a compression put the message in the place of others."""
    if message.get("role") == "tool":
        return False
    text = text_of(message.get("content"))
    return is_summary(message, text) or runtime_messages.is_left_by_compression(text)


def _calls(calls: Any) -> list[tuple[str, str]]:
    """Name and id of each call of a message, which the host's record has as JSON."""
    try:
        calls = json.loads(calls) if isinstance(calls, str) else calls
    except (ValueError, RecursionError):
        return []
    called = [call for call in calls if isinstance(call, Mapping)] if isinstance(calls, list) else []
    named = [(call.get("function"), str(call.get("id") or "")) for call in called]
    return [
        (str(function["name"]), number)
        for function, number in named
        if isinstance(function, Mapping) and function.get("name")
    ]
