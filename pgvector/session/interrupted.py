"""What was said while a turn ran: turns that were interrupted, and corrections, as the transcript shows them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ..hosts.runtime_messages import CORRECTED
from ..hosts.tool_calls import LATE_MAX, TurnRecord, begins_turn, tools_by_answer, tools_of
from ..hosts.transcript import MERGED, exchanges
from .off_record import silences, unrecorded
from .state import Turn


class Interrupted(NamedTuple):
    """A turn that was interrupted: its partial answer, the tools by whose results it was made, and its corrections."""

    turn: Turn
    answer: str
    tools: Sequence[str]
    corrections: Sequence[str] = ()

    @property
    def off_record(self) -> bool:
        """Whether it was opened off the record, or a correction says so."""
        return self.turn.off_record or any(map(silences, self.corrections))

    @property
    def unsaid(self) -> bool:
        """Whether it has an answer that was off the record, and maybe no message tells so."""
        return bool(self.answer) and (self.turn.unsaid or any(map(silences, self.corrections)))


def interrupted(passed: Sequence[Turn], record: TurnRecord, trusted: Sequence[str] = ()) -> list[Interrupted]:
    """Those of the turns that the transcript has right before the turn of a record, in order.

    `passed` were opened before it and are never handed over. One host merges a question that has no answer with the
    next one, in the same message.
    """
    if not passed or record.before is None:
        return []
    found, recent = list[Interrupted](), _last_turns(record.before, len(passed))
    said: dict[str, list[str]] = {}

    def note(question: str, text: str) -> str:
        said.setdefault(question, []).append(text)
        return question

    pairs, tools = exchanges(recent, note), tools_by_answer(recent, trusted)
    merged, answer, heard = record.merged, "", list[str]()
    for turn in reversed(passed):
        if not merged and pairs:
            merged, answer = pairs.pop()
            heard = said.pop(merged, [])
        rest = _before(merged, turn.question)
        if rest is None:
            break
        # Without an answer, a text by others may have come with the question.
        made_with = tools.get(answer, ()) if answer else tools_of([{"role": "user", "content": turn.question}], trusted)
        found.append(Interrupted(turn, answer, made_with, heard))
        merged, answer, heard = rest, "", []
    return found[::-1]


def unsilenced(turns: Sequence[Interrupted]) -> Sequence[Interrupted]:
    """The turns without those off the record, and without those before them, which these have interrupted."""
    silent = [place for place, found in enumerate(turns, 1) if found.off_record]
    return turns[silent[-1] if silent else 0 :]


def with_corrections(user: str, earlier: Sequence[str], record: TurnRecord) -> str:
    """The text of a turn with what its person said to correct it: `earlier`, which came late, and in its messages.

    Only what no result of a tool can forge counts, and nothing that the host has put there already. In a session that
    several people share, it may be by another one.
    """
    known = user.partition(CORRECTED)[2]
    said = (text for text in (*earlier, *record.corrections) if text in record.steered and text not in known)
    return CORRECTED.join([user, *(text for text in said if not unrecorded(text))])


def _last_turns(messages: Sequence[Mapping[str, Any]], count: int) -> Sequence[Mapping[str, Any]]:
    """The messages of so many turns at the end, and the one before them, which may be a summary; at most LATE_MAX."""
    recent = messages[-LATE_MAX:]
    newest_first = (place for place in range(len(recent) - 1, -1, -1) if begins_turn(recent[place]))
    return recent[max(0, next(islice(newest_first, count - 1, None), 0) - 1) :]


def _before(merged: str, question: str) -> str | None:
    """What is merged with a question, before it; None when the text does not end with the question."""
    text, end = merged.strip(), question.strip()
    if not end or not text.endswith(end):
        return None
    rest = text.removesuffix(end)
    return rest.removesuffix(MERGED) if not rest or rest.endswith(MERGED) else None
