"""The state of a conversation: the sessions before it, its current turn and its earlier turns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile

from ..model import now

ANCESTORS_MAX = 20
INTERRUPTED_MAX = 100
PENDING_MAX = 100
OFF_RECORD_MAX = 8
# How many turns one event holds.
EVENT_TURNS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Lineage:
    """The sessions that a session continues, the nearest last.

    The turns of `compressed` sessions count as the session's own, because its transcript is a summary of theirs.
    """

    ancestors: tuple[str, ...] = ()
    compressed: tuple[str, ...] = ()

    @property
    def parent(self) -> str:
        """The session before this one; empty when there is none."""
        return self.ancestors[-1] if self.ancestors else ""

    def after(self, session_id: str, *, new: bool, reason: str) -> Lineage:
        """The lineage of the session that follows `session_id`. Unless it is `new`, it goes on with its transcript."""
        compressed = (*self.compressed, session_id)[-ANCESTORS_MAX:] if reason == "compression" else ()
        if new or reason == "resume":
            # The ancestors of a resumed session are in the host's record.
            return Lineage((), compressed)
        return Lineage((*self.ancestors, session_id)[-ANCESTORS_MAX:], compressed)


@dataclass(slots=True)
class CurrentTurn:
    """The turn that was opened last. It is open until the host hands it over.

    `replayed` is the session and answer of the transcript that stored it before it was handed over.
    """

    question: str = ""
    author_id: str = ""
    off_record: bool = False
    is_open: bool = False
    began: datetime = field(default_factory=now)
    replayed: tuple[str, str] | None = None


class PendingTurns:
    """Finds out whether a turn was off the record when it was opened. In doubt, it was.

    Hosts hand over a turn late, when other turns were opened and the session was switched meanwhile, or never, if it
    was interrupted. Past 100 pending turns the oldest are forgotten. Not thread-safe.
    """

    def __init__(self) -> None:
        self._turns: deque[_Turn] = deque(maxlen=PENDING_MAX)

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


@dataclass(slots=True)
class EarlierTurns:
    """What later hooks must know of earlier turns.

    `interrupted` are questions on the record whose turn was not handed over when the next one was opened: a replay
    contains a partial answer. `off_record` are the last turns that may have been off the record: a replay contains them
    in order and shows which were not. `withdrawn` are turns of this session that were taken back. `withdrawn_question`
    is that of a turn that was taken back while it was open: the host may still hand it over.
    """

    pending: PendingTurns = field(default_factory=PendingTurns)
    interrupted: deque[str] = field(default_factory=lambda: deque(maxlen=INTERRUPTED_MAX))
    off_record: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=OFF_RECORD_MAX))
    withdrawn: frozenset[tuple[str, str]] = frozenset()
    withdrawn_question: str | None = None
    any_off_record: bool = False

    def complete(self, turn: tuple[str, str]) -> bool:
        """Whether a replayed turn on the record was answered in full."""
        return turn[0] not in self.interrupted or turn in self.off_record
