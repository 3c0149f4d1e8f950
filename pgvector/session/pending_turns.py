"""The turns that were opened and are still to be handed over, and which of them are off the record. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import takewhile

TURNS_MAX = 100


class PendingTurns:
    """Tells of a turn that is handed over whether it was off the record when it was opened. When in doubt it was.

    It may be handed over late, when others were opened and the session was taken off the record or put on it again, or
    never, if it was interrupted. Past 100 that were not handed over, the oldest are forgotten.
    """

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque(maxlen=TURNS_MAX)

    def begin(self, question: str, *, off: bool) -> None:
        """A turn is opened, `off` the record or on it."""
        self._turns.append(_Turn(question, off))

    def hand_over(self, question: str) -> bool | None:
        """Whether the turn of a question may have been opened off the record; None when none was opened."""
        asked = [turn for turn in self._turns if turn.question == question]
        if not asked:
            # Hosts hand over some turns, such as one with a picture, in other words than they open them.
            return True if any(turn.off and turn.awaited for turn in self._turns) else None
        for turn in takewhile(lambda turn: turn is not asked[0], self._turns):
            turn.awaited = False
        # Asked both ways, it may be either: the mark of the one off the record stays for the other.
        self._turns.remove(next((turn for turn in asked if not turn.off), asked[0]))
        return any(turn.off for turn in asked)


@dataclass(slots=True, eq=False)
class _Turn:
    question: str
    off: bool
    # Hosts hand over turns in their order: one is not to come any more when one was handed over that was opened later.
    awaited: bool = True
