"""A transcript as the host keeps it, and the turns of it that are worth keeping. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from . import capture
from .settings import Settings

# What hosts write in place of an answer that was interrupted.
INTERRUPTED = "Operation interrupted"
SUMMARY_MARKS = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")


def exchanges(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The (user, last answer) pairs of a transcript.

    Calls of tools and their results are left out, and what was said while calling: an answer follows.
    """
    pairs: list[tuple[str, str]] = []
    for message in messages:
        role, content = message.get("role"), message.get("content")
        text = content if isinstance(content, str) and not _is_summary(message, content) else ""
        if role == "user":
            # A message without words still begins an exchange, or its answer would be taken for the one before.
            pairs.append((text, ""))
        elif role == "assistant" and pairs and not message.get("tool_calls") and _is_answer(text):
            pairs[-1] = (pairs[-1][0], text)
    return pairs


def carried(before: Sequence[tuple[str, str]], after: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The exchanges of a transcript that the compressed one after it tells once more.

    Those are its first and its last ones, around a summary, which may stand in one of them or be one of its own. What
    is told twice on either side may also have been said again, and is none of them.
    """
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    rest = list(before[head:])
    while rest and not rest[-1][1]:
        # The turn that ran when it was compressed has its answer on the other side.
        rest.pop()
    tail = next((found for start in (head, head + 1) if (found := _tail(rest, after[start:]))), [])
    once, again = Counter(before), Counter(after)
    return [pair for pair in (*before[:head], *tail) if once[pair] == again[pair] == 1]


def kept(user: Any, assistant: Any, settings: Settings) -> tuple[str, str]:
    """What of a turn is stored: no recalled text, no side that only acknowledges, nothing without substance."""
    told = capture.without_recalled(user) if isinstance(user, str) else ""
    answered = capture.without_recalled(assistant) if isinstance(assistant, str) else ""
    return capture.substantive(told, answered, min_chars=settings.turn_min_chars)


def _tail(before: list[tuple[str, str]], after: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    for size in range(1, min(len(before), len(after)) + 1):
        if before[-size] == after[0] and before[-size:] == list(after[:size]):
            return before[-size:]
    return []


def _is_answer(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().startswith(INTERRUPTED)


def _is_summary(message: Mapping[str, Any], content: str) -> bool:
    """Whether the host put it in place of turns that it compressed; those were kept when they were said."""
    return bool(message.get("_compressed_summary")) or content.lstrip().startswith(SUMMARY_MARKS)
