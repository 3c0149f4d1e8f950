"""The tools by whose results an answer or an entry was made, as the host's transcript tells. Pure.

A tool of this memory counts as such a tool when it found a text of third parties, because the answer may repeat it.
Tools that match a `trusted` pattern do not: their operator vouches for the results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any, NamedTuple

from . import additions, runtime_messages
from .provenance import LOCAL_TOOLS, REMOTE
from .transcript import MERGED, calls_of, exchanges, is_answer, is_compressed, is_summary, kept_with_summary, text_of

MESSAGES_MAX, TOOLS_MAX, NAME_CHARS_MAX = 2000, 8, 64
# So many messages are looked at for corrections that come late: behind the newest result of a tool, and in turns that
# no host hands over.
LATE_MAX = 500
# Most calls that saved entries of third parties.
SAVING_CALLS_MAX = 200
# Most answers of a transcript with their tools: metadata is bounded.
ANSWERS_MAX = 100
# Tools whose results hold nothing but what the agent or its user has said or written. Of any other tool, such as one of
# an MCP server, a result may be by anybody.
OWN = frozenset({
    "memory", "recall_memory", "recall_conversation", "list_memories", "remember", "update", "forget", "memory_write",
    "memory_search", "memory_tick", "memory_status", "memory_reflect", "memory_export", "memory_purge",
    "memory_optimize", "todo", "todo_list", "clarify", "write_file", "patch", "text_to_speech",
    "image_generate", "cronjob", "cronjob_manage", "skills_list", "close_terminal", "send_message", "tool_search",
    "tool_describe",
})  # fmt: skip
# The tools of this memory that answer with texts of many sources.
RECALLING = frozenset({"recall_memory", "recall_conversation", "list_memories"})
# The tools that save an entry: that of the host, and those of this memory.
HOST_SAVING, OWN_SAVING = "memory", frozenset({"remember", "update"})
# In the place of tools that a compression took from the transcript. It counts as third parties.
COMPRESSED = "(compressed)"
_REMOTE_HIT = re.compile("|".join(f'"source": "{source}"' for source in sorted(REMOTE)))


class Saving(NamedTuple):
    """A call that saved an entry after results of `tools` were read, at least one of them of third parties.

    `call_id` is the host's. Of a tool of this memory, `save_id` and `theme` are what it has answered. `question` is
    that of the turn.
    """

    call_id: str
    tools: tuple[str, ...]
    question: str
    save_id: str = ""
    theme: str = ""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What a transcript tells of a turn that is handed over; by default nothing.

    `kind` is that of its question, if no person wrote it. `tools` are those whose results may come from outside, at
    most TOOLS_MAX, first those of third parties; COMPRESSED stands for tools that a compression may have taken from the
    transcript while the turn was running. `saved` is as `savings`. `corrections` are what a person said meanwhile,
    `earlier` those before the turn that may have come late, and `late` all that are such ones now.
    `steered` are those of them that are messages of their own, so that no result of a tool can forge them. `answer` is
    as the host recorded it, which may add something to the one that it hands over, such as which files were not
    written. `merged` are questions without an answer that stand before this one in its message. `before` are the
    messages before the turn; None when there are none, or one was compressed meanwhile.
    """

    kind: str = ""
    tools: Sequence[str] = ()
    saved: Sequence[Saving] = ()
    corrections: Sequence[str] = ()
    earlier: Sequence[str] = ()
    late: Sequence[str] = ()
    steered: frozenset[str] = frozenset()
    answer: str = ""
    merged: str = ""
    before: Sequence[Mapping[str, Any]] | None = None

    @property
    def place(self) -> int | None:
        """How many messages are before the turn; None when that is not known."""
        return None if self.before is None else len(self.before)


def read_turn(messages: Sequence[Mapping[str, Any]], question: str, trusted: Sequence[str] = ()) -> TurnRecord:
    """What a transcript tells of the last turn with this question, or without one of the last turn."""
    recent, question = messages[-MESSAGES_MAX:], runtime_messages.opening(str(question))
    start = _start(recent, question)
    turn = recent[_with_summary(recent, start) : _end(recent, start)]
    earlier, late, steered = _late(recent, start)
    return TurnRecord(
        kind=runtime_messages.recorded_kind(messages, question), tools=tools_of(turn, trusted),
        saved=_saved_until(recent, start, trusted), corrections=_corrections(turn),
        earlier=earlier, late=late, steered=steered, answer=_answer(turn),
        merged=text_of(recent[start].get("content")).rpartition(f"{MERGED}{question}")[0] if recent else "",
        before=None if not messages or is_compressed(turn) else messages[: len(messages) - len(recent) + start],
    )  # fmt: skip


def _answer(turn: Sequence[Mapping[str, Any]]) -> str:
    return next((answer for _, answer in reversed(exchanges(turn))), "")


def _corrections(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    found = (runtime_messages.corrections(message, text_of(message.get("content"))) for message in messages)
    return list(chain.from_iterable(found))


def _late(recent: Sequence[Mapping[str, Any]], start: int) -> tuple[list[str], list[str], frozenset[str]]:
    """The corrections in the LATE_MAX messages before the turn that begins there, and in the newest.

    That of a turn which was interrupted then is heard late, too. Last come those of all in messages of their own.
    """
    places = range(max(0, start - LATE_MAX), len(recent))
    found = [(place, said) for place in places for said in _corrections(recent[place : place + 1])]
    earlier = [said for place, said in found if place < start]
    steered = frozenset(said for place, said in found if recent[place].get("role") == "user")
    return earlier, [said for place, said in found if place >= len(recent) - LATE_MAX], steered


def tools_by_answer(messages: Sequence[Mapping[str, Any]], trusted: Sequence[str] = ()) -> dict[str, list[str]]:
    """The tools from outside by whose results the newest ANSWERS_MAX of such answers were made, by the answers."""
    found: dict[str, list[str]] = {}
    for turn in _turns(messages):
        used = _ToolUse(trusted)
        for message in turn:
            used.add(message)
            if message.get("role") == "assistant" and not message.get("tool_calls") and (tools := used.tools()):
                found[text_of(message.get("content"))] = tools
        # One that came in parts.
        if (answer := _answer(turn)) and answer not in found and (tools := used.tools()):
            found[answer] = tools
    return dict(list(found.items())[-ANSWERS_MAX:])


def savings(messages: Sequence[Mapping[str, Any]], trusted: Sequence[str] = ()) -> list[Saving]:
    """The calls of the last turn that saved entries after third parties were read, at most SAVING_CALLS_MAX.

    With those of the turns just before it that were interrupted: no host hands these over.
    """
    recent = messages[-MESSAGES_MAX:]
    return _saved_until(recent, _start(recent), trusted)


@dataclass(slots=True)
class _ToolUse:
    """What messages of a turn tell of its tools: their names, and whether one of this memory found a remote hit."""

    trusted: Sequence[str]
    names: dict[str, None] = field(default_factory=dict)
    recalls: set[str] = field(default_factory=set)
    repeats: bool = False

    def add(self, message: Mapping[str, Any]) -> None:
        """Read the next message of the turn."""
        if _is_summary(message):
            self.names[COMPRESSED] = None
        elif message.get("role") == "user":
            self.names |= dict.fromkeys(additions.brought(text_of(message.get("content"))))
        for call in calls_of(message):
            self.names[call.name] = None
            if call.name in RECALLING:
                self.recalls.add(call.id)
        if self.recalls and message.get("role") == "tool" and str(message.get("tool_call_id") or "") in self.recalls:
            self.repeats = self.repeats or bool(_REMOTE_HIT.search(text_of(message.get("content"))))

    def tools(self) -> list[str]:
        """The tools whose results may come from outside, those of third parties first."""
        outside = (name for name in self.names if name not in OWN or (self.repeats and name in RECALLING))
        wanted = (name[:NAME_CHARS_MAX] for name in outside if not self._trusts(name))
        return sorted(wanted, key=LOCAL_TOOLS.__contains__)[:TOOLS_MAX]

    def _trusts(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.trusted)


def _start(recent: Sequence[Mapping[str, Any]], question: str | None = None) -> int:
    """Where the last turn with this question begins, or without one the last turn."""
    newest_first = range(len(recent) - 1, -1, -1)
    newest = next((place for place in newest_first if begins_turn(recent[place])), 0)
    if not recent or question is None or _asks(recent[newest], question):
        return newest
    asked = (place for place in newest_first if recent[place].get("content") == question)
    return next((place for place in asked if begins_turn(recent[place])), newest)


def _asks(message: Mapping[str, Any], question: str) -> bool:
    """Whether a message is this question. Hosts hand it over without the skill that their transcript has with it.

    One host merges it with one before it that has no answer.
    """
    text = text_of(message.get("content"))
    return text == question or text.endswith(f"{MERGED}{question}") or additions.written(text) == question.strip()


def _end(recent: Sequence[Mapping[str, Any]], start: int) -> int:
    return next((place for place in range(start + 1, len(recent)) if begins_turn(recent[place])), len(recent))


def _with_summary(recent: Sequence[Mapping[str, Any]], start: int) -> int:
    """Where a turn begins with the summary before it: a running turn that was compressed looks the same."""
    return start - 1 if start and _is_summary(recent[start - 1]) else start


def _saved_until(recent: Sequence[Mapping[str, Any]], start: int, trusted: Sequence[str]) -> list[Saving]:
    """The calls that saved entries in the turn that begins there, and in those before it that have no answer."""
    first = start
    while first and not _is_final(recent[first - 1]):
        first -= 1
    turns = _turns(recent[min(first, _with_summary(recent, start)) : _end(recent, start)])
    return [saving for turn in turns for saving in _savings(turn, trusted)][-SAVING_CALLS_MAX:]


def _is_final(message: Mapping[str, Any]) -> bool:
    """Whether the message ends a turn that was not interrupted."""
    ends = message.get("role") == "assistant" and not message.get("tool_calls")
    return ends and is_answer(text_of(message.get("content")))


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """The messages of each turn, with the summary before it."""
    turn: list[Mapping[str, Any]] = []
    for message in messages:
        if turn and begins_turn(message):
            yield turn
            turn = [turn[-1]] if _is_summary(turn[-1]) else []
        turn.append(message)
    if turn:
        yield turn


def tools_of(turn: Iterable[Mapping[str, Any]], trusted: Sequence[str]) -> list[str]:
    """The tools from outside whose results the messages of a turn have, and those that stand for texts by others."""
    used = _ToolUse(trusted)
    for message in turn:
        used.add(message)
    return used.tools()


def _savings(turn: Sequence[Mapping[str, Any]], trusted: Sequence[str]) -> list[Saving]:
    """The calls of a turn that saved an entry when a result of third parties was read."""
    question = next((text_of(message.get("content")) for message in turn if begins_turn(message)), "")
    used, found, own = _ToolUse(trusted), list[Saving](), dict[str, tuple[str, ...]]()
    for message in turn:
        calls = [call for call in calls_of(message) if call.name == HOST_SAVING or call.name in OWN_SAVING]
        tools = tuple(used.tools()) if calls else ()
        if not LOCAL_TOOLS.issuperset(tools):
            hosts = (plain_id(call.id) for call in calls if call.name == HOST_SAVING)
            found += [Saving(number, tools, question) for number in hosts if number]
            own |= {call.id: tools for call in calls if call.name in OWN_SAVING}
        used.add(message)
        number = str(message.get("tool_call_id") or "")
        if message.get("role") == "tool" and (tools := own.pop(number, ())):
            saved = _beginning(text_of(message.get("content")))
            if isinstance(saved.get("save_id"), str) and isinstance(saved.get("theme"), str):
                found.append(Saving(number, tools, question, saved["save_id"], saved["theme"]))
    return found


def plain_id(call_id: str) -> str:
    """The id of a call as it is in the transcript: one host gives a longer form to its hook."""
    return call_id.split("|")[0].strip()


def begins_turn(message: Mapping[str, Any]) -> bool:
    """Whether a message is the question of a turn."""
    if message.get("role") != "user":
        return False
    text = text_of(message.get("content"))
    if runtime_messages.is_within_turn(message, text) or runtime_messages.is_left_by_compression(text):
        return False
    return not is_summary(message, text) or bool(kept_with_summary(text))


def _is_summary(message: Mapping[str, Any]) -> bool:
    """Whether a compression put the message in the place of others."""
    if message.get("role") == "tool":
        return False
    text = text_of(message.get("content"))
    return is_summary(message, text) or runtime_messages.is_left_by_compression(text)


def _beginning(text: str) -> Mapping[str, Any]:
    """The JSON object with which a result begins, or an empty one. Hosts append notes to results."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, Mapping) else {}
