"""Judges which turns are worth storing, and which questions are worth a recall."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..hosts.additions import written
from ..hosts.runtime_messages import mark_of
from ..hosts.transcript import text_of
from ..settings import Settings
from ..text.cleaning import clean, without_recalled
from ..text.keep import Decider, Ruling, Source
from ..text.keep_rules import Side
from ..text.masks import masked
from ..text.phrases import made_of, phrases

_COMMAND = re.compile(r"/[A-Za-z][\w-]*")
PERSON = "primary"
SIDES: tuple[Side, ...] = ("user", "assistant")
ACKNOWLEDGES = "it only acknowledges"
EMPTY = "it is empty"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The sides of a turn that are stored; the others are empty, and `reasons` says why.

    `rulings` are those of the rules, which are not asked where something else decides for the whole turn.
    """

    user: str = ""
    assistant: str = ""
    reasons: Mapping[Side, str] = field(default_factory=dict)
    rulings: Mapping[Side, Ruling] = field(default_factory=dict)

    @property
    def sides(self) -> tuple[str, str]:
        """What is stored of the message and of its answer."""
        return self.user, self.assistant


class Capture:
    """Decides what is stored of turns, delegations and entries, and whether a message recalls. Safe for any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._decider = Decider(settings.keep, settings.owner_accounts)

    def turn(
        self,
        user: Any,
        assistant: Any,
        source: Source,
        *,
        context: str = PERSON,
        kind: str = "",
        continued: bool = False,
    ) -> Verdict:
        """What is stored of a turn on the record. `kind` is that of a message which the host recorded as its own.

        A question that is `continued` has no answer, because the next one came before it: it may be short.
        """
        whole = self._why_no_turn(user, context, kind)
        if whole:
            return Verdict(reasons={"user": whole, "assistant": whole})
        min_chars = 1 if continued else self._settings.turn_min_chars
        return self._sides(written(_said(user)), _said(assistant), source, min_chars)

    def possible(self, user: str, assistant: str, source: Source) -> Verdict:
        """What may have been stored of a turn that is in the host's record, whoever wrote it."""
        min_chars = self._settings.turn_min_chars if assistant else 1
        return self._sides(written(_said(user)), _said(assistant), source, min_chars, most=True)

    def _sides(self, user: str, assistant: str, source: Source, min_chars: int, *, most: bool = False) -> Verdict:
        rulings = self._rulings(user, assistant, source, most=most)
        reasons = {side: str(ruling) for side, ruling in rulings.items() if ruling.action != "turns"}
        left = (
            "" if "user" in reasons else self.masked(user),
            "" if "assistant" in reasons else self.masked(assistant),
        )
        stored = worth_storing(*left, min_chars)
        for side, before, after in zip(SIDES, left, stored, strict=True):
            if side not in reasons and not after:
                short = f"the turn is shorter than turn_min_chars, {self._settings.turn_min_chars}"
                reasons[side] = EMPTY if not before else ACKNOWLEDGES if any(stored) else short
        return Verdict(*stored, reasons, rulings)

    def masked(self, text: str) -> str:
        """What of a text of a conversation may be written to a disk: without secrets of known shapes."""
        return masked(text) if self._settings.mask_secrets else text

    def delegates(self, task: str, result: str, source: Source) -> bool:
        """Whether a task for a child agent is stored with its result: where the rules keep both as turns."""
        rulings = self._rulings(_said(task), _said(result), source, most=False)
        return all(ruling.action == "turns" for ruling in rulings.values())

    def why_no_entry(self, content: str, source: Source) -> str:
        """Why an entry is not stored; empty when it is."""
        ruling = self.entry_ruling(content, source)
        return str(ruling) if ruling.action == "none" else ""

    def entry_ruling(self, content: str, source: Source) -> Ruling:
        """What the rules say of an entry."""
        return self._decider.entry(source, clean(content) if self._decider.has_patterns else content)

    def keeps_of_file(self, content: str) -> bool:
        """Whether an entry that is found in MEMORY.md or USER.md is stored."""
        return not self.why_no_entry(content, Source(is_file=True))

    def why_no_recall(self, query: str, context: str = PERSON) -> str:
        """Why nothing is recalled before this message; empty when memories are."""
        if small_talk(query):
            return "it is small talk or a command"
        return self.by_host(query, context)

    def by_host(self, message: Any, context: str, kind: str = "") -> str:
        """Why a message counts as the host's own and not as a person's; empty when it does not.

        The prompt of a job does not, where `write_contexts` has its turns stored.
        """
        if context == "cron" and context not in self._settings.write_contexts:
            return "it is the prompt of a scheduled job"
        mark = kind or mark_of(text_of(message))
        return f"the host wrote it: {mark}" if mark and (context == PERSON or kind) else ""

    def _why_no_turn(self, user: Any, context: str, kind: str) -> str:
        if context not in self._settings.write_contexts:
            return f"write_contexts does not name {context}"
        if not self._settings.sync_turns:
            return "sync_turns is false"
        return self.by_host(user, context, kind)

    def _rulings(self, user: str, assistant: str, source: Source, *, most: bool) -> dict[Side, Ruling]:
        if self._decider.has_patterns:
            user, assistant = clean(user), clean(assistant)
        texts: dict[Side, str] = {"user": user, "assistant": assistant}
        return {side: self._decider.turn(source, side, texts, most=most) for side in SIDES}


def width(text: str) -> int:
    """The width of a text in characters: an East Asian wide one counts two, one without width none."""
    if text.isascii():
        return len(text)
    seen = (character for character in text if unicodedata.category(character) not in ("Mn", "Me", "Cf"))
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in seen)


def worth_storing(user: str, assistant: str, min_chars: int) -> tuple[str, str]:
    """The sides of a turn that are worth storing; the others are empty.

    A message that only acknowledges is dropped, and the whole turn when the rest is narrower than `min_chars`.
    """
    if made_of(_ONLY_ACKNOWLEDGES, user):
        user = ""
    # Enough is measured to decide; long texts are not walked to their end.
    total = width(user[: 8 * min_chars]) + width(assistant[: 8 * min_chars])
    return (user, assistant) if total >= min_chars else ("", "")


def _said(message: Any) -> str:
    """What was said with a message, without recalled memories."""
    return without_recalled(text_of(message)).strip()


def small_talk(query: str) -> bool:
    """Whether nothing is recalled for this message: empty, a greeting, an acknowledgement, or a bare `/command`."""
    stripped = query.strip()
    return _COMMAND.fullmatch(stripped) is not None or made_of(_SMALL_TALK, stripped)


# Phrases without information: a message made of acknowledgements is not stored, and none of these recalls anything.
_ONLY_ACKNOWLEDGES = phrases("acknowledgements")
_SMALL_TALK = _ONLY_ACKNOWLEDGES | phrases("greetings")
