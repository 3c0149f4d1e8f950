"""Turns that were opened and not handed over yet, and which of them are off the record."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile

TURNS_MAX = 100


class PendingTurns:
    """Finds out whether a turn was off the record when it was opened. In doubt, it was.

    Hosts hand over a turn late, when other turns were opened and the session was switched meanwhile, or never, if it
    was interrupted. Past 100 pending turns the oldest are forgotten. Not thread-safe.
    """

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque(maxlen=TURNS_MAX)

    def begin(self, question: str, *, off: bool) -> None:
        """Add a turn that was opened, `off` the record or on it."""
        self._turns.append(_Turn(question, off))

    def hand_over(self, question: str) -> bool | None:
        """Remove the turn of a question. Returns whether it may be off the record; None when none was opened."""
        asked = [turn for turn in self._turns if turn.question == question]
        if not asked:
            # Hosts hand over some turns, such as those with a picture, with another text than they open them.
            return True if any(turn.off and turn.awaited for turn in self._turns) else None
        for turn in takewhile(lambda turn: turn is not asked[0], self._turns):
            turn.awaited = False
        # A question that was asked on and off the record may be either: the entry off the record stays for the next.
        self._turns.remove(next((turn for turn in asked if not turn.off), asked[0]))
        return any(turn.off for turn in asked)


@dataclass(slots=True, eq=False)
class _Turn:
    question: str
    off: bool
    # Hosts hand over turns in order: False once a turn was handed over that was opened later.
    awaited: bool = True
