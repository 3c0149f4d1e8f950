"""A transcript as the host keeps it, and the turns of it that are worth keeping. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

# What hosts write in place of an answer that was interrupted.
INTERRUPTED = "Operation interrupted"
SUMMARY = re.compile(r"\s*(\[\d+ images?\] )?\[CONTEXT (COMPACTION|SUMMARY\])")
TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
IMAGE_PARTS = frozenset({"image_url", "input_image"})
# As many as hosts take of a message that a client sends.
PARTS_MAX = 1000


def text_of(content: Any) -> str:
    """What a message says. Its parts are put together as hosts do for `sync_turn`, or a replay would not know the turn.

    What is neither a text nor a list of parts says nothing.
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


def exchanges(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The (user, last answer) pairs of a transcript.

    Calls of tools and their results are left out, and what was said while calling: an answer follows.
    """
    pairs: list[tuple[str, str]] = []
    for message in messages:
        role, text = message.get("role"), text_of(message.get("content"))
        if _is_summary(message, text):
            text = ""
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


def _is_answer(text: str) -> bool:
    return bool(text.strip()) and not text.lstrip().startswith(INTERRUPTED)


def _is_summary(message: Mapping[str, Any], text: str) -> bool:
    """Whether the host put it in place of turns that it compressed; those were kept when they were said."""
    return bool(message.get("_compressed_summary")) or SUMMARY.match(text) is not None
