"""Texts that stand in the context of a session, so that no recall before a turn repeats them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..hosts.context_record import LiveMessage
from ..hosts.transcript import SUMMARY
from ..model import FACTS_HEADING, Hit
from ..text.alike import comparable
from ..text.cleaning import clean
from ..text.sanitize import unlinked_line
from .render import best_passage, left_out

# How hosts enclose the memories before a turn, and how `render` writes one.
_FENCE = re.compile(r"<memory-context>(.*?)</memory-context>", re.DOTALL)
_FACTS = re.compile(rf"^{re.escape(FACTS_HEADING)}.*(?:\n.+)*", re.MULTILINE)
_BULLET = re.compile(r"^- \[[^\]\n]*\] (.+)$", re.MULTILINE)
_QUOTE = re.compile(r"^> ?", re.MULTILINE)
# How a summary repeats the last question of those that it replaces.
_ASKED = re.compile(r"^User asked \(deterministic, from compacted turns\): (['\"])(.*)\1$", re.MULTILINE)
CUT = "…"


@dataclass(frozen=True, slots=True)
class Shown:
    """The system prompt, summaries, messages and memories that stand in a context.

    `prompt` and `summary` are compared line by line, as they are. `said` has the hashes of messages, `whole` the
    memories that were shown whole, `passages` parts of longer ones, all of `comparable` texts. `facts` is the last
    block of hot facts.
    """

    prompt: str = ""
    summary: str = ""
    said: Mapping[int, None] = field(default_factory=dict)
    whole: Mapping[str, None] = field(default_factory=dict)
    passages: Mapping[str, None] = field(default_factory=dict)
    facts: str = ""

    @property
    def memories(self) -> int:
        """The number of memories that may be found again, those in the prompt counted roughly."""
        return len(self.whole) + len(self.passages) + self.prompt.count("\n§\n") + bool(self.prompt)

    def with_messages(self, messages: Iterable[LiveMessage], most: int) -> Shown:
        """With the texts of these messages, and the memories that were added to them; of each, the newest `most`."""
        messages = tuple(messages)
        if not messages:
            return self
        said, whole, passages = dict(self.said), dict(self.whole), dict(self.passages)
        summary, facts = self.summary, self.facts
        for message in messages:
            if SUMMARY.match(message.text):
                # Hosts quote messages of the user in a summary, one host all of them.
                summary = lines_of(_ASKED.sub(r"\2", _QUOTE.sub("", message.text)))
                continue
            said[hash(comparable(message.text))] = None
            facts = facts_in(message.sent) or facts
            for text in memories_in(message.sent):
                cut = text.startswith(CUT) or text.endswith(CUT)
                (passages if cut else whole)[comparable(text)] = None
        return Shown(self.prompt, summary, _newest(said, most), _newest(whole, most), _newest(passages, most), facts)

    def holds(self, hit: Hit, query: str, *, room: int, chars_max: int) -> bool:
        """Whether the context has all that a block of `chars_max` characters would show of a hit for this query.

        `room` is what a long text gets at least. A memory whose text was changed is not held, unless what would be
        shown of it is the same.
        """
        lines = lines_of(hit.content)
        if lines in self.prompt or lines in self.summary:
            return True
        text = comparable(hit.content)
        if hash(text) in self.said:
            return True
        if pointer := left_out(hit):
            return comparable(pointer) in self.whole
        # A block gives no hit more than half of its room.
        short = self.whole and len(hit.content) <= chars_max
        if short and comparable(unlinked_line(hit.content, chars_max)) in self.whole:
            return True
        shown = [passage for passage in self.passages if passage in text] if len(hit.content) > room else ()
        if not shown:
            return False
        wanted = comparable(unlinked_line(best_passage(hit.content, query, room)[: 2 * room], room).strip(CUT))
        return any(wanted in passage for passage in shown)


def lines_of(text: str) -> str:
    """A text as whole lines, to be found in another one; empty when it is."""
    return f"\n{clean(text).strip()}\n" if text else ""


def memories_in(sent: str) -> list[str]:
    """The texts of the memories in a message as the model got it."""
    if "<memory-context>" not in sent:
        return []
    return [bullet for fence in _FENCE.findall(sent) for bullet in _BULLET.findall(fence)]


def facts_in(sent: str) -> str:
    """The block of hot facts in a message as the model got it; empty without one."""
    if FACTS_HEADING not in sent:
        return ""
    found = [block[0] for fence in _FENCE.findall(sent) for block in _FACTS.finditer(fence)]
    return found[-1].strip() if found else ""


def _newest(texts: dict[int, None] | dict[str, None], most: int) -> dict[Any, None]:
    return dict(islice(texts.items(), max(0, len(texts) - most), None))
