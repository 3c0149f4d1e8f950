"""Leaves out of the host's record of a session what the host has written into it once more. Pure.

A host does so when it compresses a session in place, and when a session is left: with the times of the originals if it
was resumed, with new ones if it was compressed and nothing was said since.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .transcript import is_summary, kept_with_summary

# One host writes the messages that a compression in place keeps a microsecond after each other, in the order of their
# ids: results of tools may be between two.
_NEXT_S = 2e-6


def without_copies(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a host's record without copies.

    What a compression writes with them is left out, too: the summary, and a question that it has changed, which may be
    several that the host has merged. A message was taken back when a copy of it was.
    """
    kept, messages = _Kept(), _with_kept(_without_repeated(messages))
    for place, message in enumerate(messages):
        before, after = messages[max(0, place - 1) : place], messages[place + 1 : place + 2]
        original = kept.original(message, at_once=_at_once(message, (*before, *after)))
        if original is None:
            kept.add(message, goes_on=_at_once(message, after))
        else:
            kept.leave_out(message, original)
    return kept.messages


def _with_kept(messages: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """The messages, of which no answer was taken back that stands in one message with a summary, with its time."""
    kept = {
        (text, message["written"]) for message in messages
        if message["role"] == "assistant" and not message["taken_back"]
        and (text := kept_with_summary(message["content"]))
    }  # fmt: skip

    def stands(message: Mapping[str, Any]) -> bool:
        return message["role"] == "assistant" and (message["content"], message["written"]) in kept

    return [{**m, "taken_back": False} if m["taken_back"] and stands(m) else m for m in messages] if kept else messages


def _without_repeated(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages without those that repeat others around the summary of a compression, which nobody says twice."""
    found, gone, first = list(messages), set[int](), dict[str, int]()
    compressed = False
    for place, message in enumerate(messages):
        compressed = compressed or message["compacted"]
        if place in gone or not (compressed and is_summary(message, message["content"])):
            continue
        original = first.setdefault(message["content"], place)
        if original < place and not _at_once(message, [*messages[place - 1 : place], *messages[place + 1 : place + 2]]):
            for copy in _repeats(messages, original, place):
                gone.add(copy)
                if messages[copy]["taken_back"]:
                    found[copy - place + original] = {**found[copy - place + original], "taken_back": True}
    return [message for place, message in enumerate(found) if place not in gone]


def _repeats(messages: Sequence[Mapping[str, Any]], original: int, copy: int) -> range:
    """The places around a message that repeat those which the compression wrote around its original."""

    def same(step: int, nearer: int) -> bool:
        one, other = messages[original + step], messages[copy + step]
        equal = (one["role"], one["content"]) == (other["role"], other["content"])
        return equal and _at_once(one, [messages[original + nearer]])

    start, end = 0, 1
    while original + start > 0 and copy + start - 1 > original and same(start - 1, start):
        start -= 1
    while original + end < copy + start and copy + end < len(messages) and same(end, end - 1):
        end += 1
    return range(copy + start, copy + end)


def _at_once(message: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a message was written with another one."""
    apart = ((abs(other["written"] - message["written"]), abs(other["id"] - message["id"])) for other in others)
    return any(time < _NEXT_S * rows for time, rows in apart)


@dataclass(slots=True)
class _Kept:
    """The messages that are no copies, and where each text, and each text with its time, stands in them."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    _places: defaultdict[tuple[str, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    _exact: dict[tuple[str, str, float], int] = field(default_factory=dict)
    # Whether a compression was before, and whether the last message may be a question that it has changed.
    _compressed: bool = False
    _changed: bool = False

    def original(self, message: Mapping[str, Any], *, at_once: bool) -> int | None:
        """The place of the message of which this one is a copy; None when it is none."""
        role, content, at = message["role"], message["content"], message["written"]
        same = self._places[role, content]
        place = self._exact.get((role, content, at)) if at else None
        if place is None and same and at_once and self.messages[same[-1]]["compacted"]:
            place = same[-1]
        return None if place is None or self.messages[place]["taken_back"] else place

    def add(self, message: dict[str, Any], *, goes_on: bool) -> None:
        """Keep a message; `goes_on` is whether the next one was written with it."""
        summarises = is_summary(message, message["content"])
        if summarises and self._changed:
            self._drop_changed()
        self._changed = self._compressed and message["role"] == "user" and goes_on and not summarises
        if not (message["taken_back"] or summarises):
            self._places[message["role"], message["content"]].append(len(self.messages))
            self._exact[message["role"], message["content"], message["written"]] = len(self.messages)
        self.messages.append(message)
        self._compressed = self._compressed or message["compacted"]

    def leave_out(self, copy: Mapping[str, Any], original: int) -> None:
        """Leave out a copy, and what the compression has written before it."""
        # A message that is written twice in a row belongs to no compression before it.
        self._changed = self._changed and original < len(self.messages) - 1
        if copy["taken_back"]:
            self._places[copy["role"], copy["content"]].remove(original)
            self._take_back(original)
        if self._changed:
            self._drop_changed()
        elif is_summary(self.messages[-1], self.messages[-1]["content"]):
            self.messages.pop()
        self._changed = False

    def _drop_changed(self) -> None:
        """Leave out the last message, a question that a compression has changed."""
        last = self.messages.pop()
        if not last["taken_back"]:
            self._places[last["role"], last["content"]].pop()
            del self._exact[last["role"], last["content"], last["written"]]

    def _take_back(self, place: int) -> None:
        """Note that a message was taken back, and with a changed question those before it that have no answer."""
        self.messages[place] = {**self.messages[place], "taken_back": True}
        while self._changed and place and not _answers(self.messages[place - 1]):
            place -= 1
            self.messages[place] = {**self.messages[place], "taken_back": True}


def _answers(message: Mapping[str, Any]) -> bool:
    return message["role"] == "assistant" and not message["tool_calls"]
