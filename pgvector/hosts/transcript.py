"""Reads the exchanges out of a transcript of the host."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from . import runtime_messages

# How hosts begin the message in place of an interrupted answer.
INTERRUPTED = "Operation interrupted"
# What one host records in place of the answer of a turn that failed or was interrupted.
FAILED = frozenset({
    "Your request was not processed. Send it again if you still want me to carry it out.",
    "This turn did not complete. Some actions may already have run; verify their effects before resending.",
})  # fmt: skip
# A summary may stand behind the first of the messages that a compression keeps, in one message with it.
_KEPT = r"\[PRIOR CONTEXT[^\]\n]*\]\n(?P<kept>.*?)\n\n\[END OF PRIOR CONTEXT"
SUMMARY = re.compile(rf"\s*(\[\d+ images?\] )?(\[CONTEXT (COMPACTION|SUMMARY\])|{_KEPT})", re.DOTALL)
# What stands between messages that a host merges.
MERGED = "\n\n"
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
IMAGE_PARTS = frozenset({"image_url", "input_image"})
# Why the messages end that an answer consists of; `length`: the rest follows, or never came.
FINISHED = (None, "", "stop", "length")
_ENCODED = "\0json:"
# Hosts take as many parts of a client's message.
PARTS_MAX = 1000
# The tool by which one host calls those that it does not list for its model.
BRIDGE = "tool_call"


class Call(NamedTuple):
    """A call of a tool: its name, and the id of the call."""

    name: str
    id: str


def decoded(content: Any) -> str:
    """The text of a recorded message; one with parts is JSON."""
    if isinstance(content, str) and content.startswith(_ENCODED):
        try:
            content = json.loads(content.removeprefix(_ENCODED))
        except (ValueError, RecursionError):
            return ""
    return text_of(content)


def text_of(content: Any) -> str:
    """The text of a message, empty when there is none.

    Parts are joined as hosts join them for `sync_turn`, so that a replayed turn equals the one that was handed over.
    """
    if isinstance(content, str):
        return content
    texts: list[str] = []
    images = 0
    for part in content[:PARTS_MAX] if isinstance(content, list) else ():
        kind, text = _kind_and_text(part)
        images += kind in IMAGE_PARTS
        if kind in TEXT_PARTS and isinstance(text, str) and text:
            texts.append(text)
    note = f"[{images} image{'s' if images > 1 else ''}]" if images else ""
    return " ".join(filter(None, (note, "\n".join(texts).strip())))


def exchanges(
    messages: Sequence[Mapping[str, Any]], correct: Callable[[str, str], str] | None = None
) -> list[tuple[str, str]]:
    """The (question, last answer) pairs of a transcript, without tool calls, their results and texts beside them.

    Turns that the host began by itself are left out. A message by which a person corrects a turn belongs to it:
    `correct` returns the question that the turn then has, of its question and what was said. An answer that came in
    parts, because the model may say only so much at once, is put together.
    """
    pairs: list[tuple[str, str]] = []
    by_host: set[int] = set()
    begun = ""
    for message in messages:
        role, text = message.get("role"), text_of(message.get("content"))
        if is_summary(message, text) or runtime_messages.is_left_by_compression(text):
            # Of an answer that was kept, the question is in the summary.
            text = kept_with_summary(text) if role == "user" else ""
        if role == "user" and not (pairs and runtime_messages.is_within_turn(message, text)):
            if text and runtime_messages.is_written_by_host(message, text):
                by_host.add(len(pairs))
            # A message without words begins an exchange too: its answer is not the one of the question before.
            pairs.append((text, ""))
            begun = ""
        elif role == "user" and runtime_messages.asks_for_the_rest(text):
            begun = pairs[-1][1]
        elif role == "assistant" and pairs and not message.get("tool_calls") and is_answer(text):
            pairs[-1] = (pairs[-1][0], f"{begun}\n{text}" if begun else text)
            begun = ""
        for said in runtime_messages.corrections(message, text) if pairs else ():
            if correct and (question := correct(pairs[-1][0], said)) != pairs[-1][0]:
                pairs[-1] = (question, pairs[-1][1])
                by_host.discard(len(pairs) - 1)
    return [pair for place, pair in enumerate(pairs) if place not in by_host]


def without_repeated(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The messages without runs of those that are there before, with the same times.

    One host doubles the transcript of a session that is left for another one and resumed again. A single message may
    have been sent twice: the times of messengers are whole seconds.
    """
    timed = [
        (place, (message["role"], text_of(message.get("content")), message["timestamp"]))
        for place, message in enumerate(messages)
        if message.get("role") in ("user", "assistant") and isinstance(message.get("timestamp"), float)
    ]
    first: dict[tuple[str, str, float], int] = {}
    again = [first.setdefault(key, place) < place for place, key in timed]
    runs = (said and any(again[max(0, n - 1) : n] + again[n + 1 : n + 2]) for n, said in enumerate(again))
    gone = {place for (place, _), in_run in zip(timed, runs, strict=True) if in_run}
    return [message for place, message in enumerate(messages) if place not in gone]


def since_handoff(
    messages: Sequence[Mapping[str, Any]], recorded: Sequence[Mapping[str, Any]] = ()
) -> Sequence[Mapping[str, Any]]:
    """The messages of a chat since its session was handed off from a terminal, which has stored those before.

    A compression keeps the first ones, and may put the note of the handoff into its summary. Then that is looked for in
    `recorded`, the messages of the host's record of the session and of those that it continues.
    """
    if place := _handoff(messages):
        return messages[place:]
    said, place = [(message["role"], message["content"]) for message in recorded[: _handoff(recorded)]], 0
    for message in messages if said else ():
        if message.get("role") in ("user", "assistant"):
            if said[:1] != [(message["role"], text_of(message.get("content")))]:
                break
            said.pop(0)
        place += 1
    return messages[place:] if place else messages


def before_handoff(messages: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]] | None:
    """The messages of a terminal before it first handed its session off to a chat; None when no note tells of it."""
    place = next((place for place, message in enumerate(messages) if _tells_handoff(message)), None)
    return None if place is None else messages[:place]


def _handoff(messages: Sequence[Mapping[str, Any]]) -> int:
    """The place of the last note that a session was handed off from a terminal; 0 without one."""
    newest_first = range(len(messages) - 1, -1, -1)
    return next((place for place in newest_first if _tells_handoff(messages[place])), 0)


def _tells_handoff(message: Mapping[str, Any]) -> bool:
    said = text_of(message.get("content")) if message.get("role") == "user" else ""
    return said.startswith(runtime_messages.HANDED_OFF)


def kept_with_summary(text: str) -> str:
    """The text of the earlier message that a compression put into one message with its summary; empty without one."""
    found = SUMMARY.match(text)
    return (found["kept"] or "") if found else ""


def finished(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The messages without those of the assistant that were not the end of a turn.

    Hosts remove the tool calls of messages that are compressed, so only the reason of the end shows that one had some.
    """
    return [message for message in messages if message.get("finish_reason") in FINISHED]


def is_compressed(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the host's record of a session has messages that were compressed, or a summary in place of them."""
    return any(message.get("compacted") or is_summary(message, text_of(message.get("content"))) for message in messages)


def carried(before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The exchanges of a transcript that are repeated in the compressed transcript after it.

    These are its first and its last exchanges. The summary between them is part of an exchange or one of its own. An
    exchange that is twice on either side may have been said again, and is left out.
    """
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    rest = list(before[head:])
    while rest and not rest[-1][1]:
        # The answer of the turn that was running is in the other transcript.
        rest.pop()
    tail = next((found for start in (head, head + 1) if (found := _tail(rest, after[start:]))), [])
    once, again = Counter(before), Counter(after)
    return [pair for pair in (*before[:head], *tail) if once[pair] == again[pair] == 1]


def calls_of(message: Mapping[str, Any]) -> list[Call]:
    """The calls of tools in a message, which the host's record has as JSON."""
    called = (call for call in _mappings(message.get("tool_calls")) if isinstance(call.get("function"), Mapping))
    return [Call(name, str(call.get("id") or "")) for call in called for name in _names(call["function"])]


def _names(function: Mapping[str, Any]) -> list[str]:
    """The name of the tool that is called, or the names of those that are called by BRIDGE."""
    name = str(function.get("name") or "")
    if name != BRIDGE:
        return [name] if name else []
    arguments = next(iter(_mappings(function.get("arguments"))), {})
    asked = [str(call.get("name") or "").strip() for call in _mappings(arguments.get("calls") or arguments)]
    return [name or BRIDGE for name in asked] or [BRIDGE]


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list, or the one object; the value may be JSON."""
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return []
    found = value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, Mapping)]


def _kind_and_text(part: Any) -> tuple[str, Any]:
    if isinstance(part, str):
        return "text", part
    if not isinstance(part, Mapping):
        return "", None
    kind = part.get("type")
    return kind.strip().lower() if isinstance(kind, str) else "", part.get("text")


def _tail(before: list[tuple[str, str]], after: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    for size in range(1, min(len(before), len(after)) + 1):
        if before[-size] == after[0] and before[-size:] == list(after[:size]):
            return before[-size:]
    return []


def is_answer(text: str) -> bool:
    """Whether a text of the assistant is an answer, and not what stands in the place of one that was never given."""
    said = text.strip()
    return bool(said) and said not in FAILED and not said.startswith(INTERRUPTED)


def is_summary(message: Mapping[str, Any], text: str) -> bool:
    """Whether the host put the message in place of compressed turns, which were stored when they were said."""
    return bool(message.get("_compressed_summary")) or SUMMARY.match(text) is not None
