"""The last turns of the sessions of a home. The next message of a session may come with another provider object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cachetools import LRUCache

from .state import Taken, Turn

# Sessions whose corrections are known.
CORRECTED_MAX = 10_000
# The length of all texts that are kept to see that a question is asked again, and of how many turns of a session.
TAKEN_CHARS_MAX, TAKEN_MAX = 4_000_000, 10
# The same of turns that began, with so much for each besides its question, and how many of a session.
OPENED_CHARS_MAX, OPENED_CHARS, OPENED_MAX = 4_000_000, 500, 20

Key = tuple[str, str]


class RecentTurns:
    """Turns that began, turns that were handed over, and corrections, by theme and session. Not thread-safe."""

    def __init__(self) -> None:
        self._corrections: LRUCache[Key, Sequence[int]] = LRUCache(CORRECTED_MAX)
        self._taken: LRUCache[Key, Sequence[Taken]] = LRUCache(TAKEN_CHARS_MAX, getsizeof=_taken_chars)
        self._opened: LRUCache[Key, Sequence[Turn]] = LRUCache(OPENED_CHARS_MAX, getsizeof=_opened_chars)

    def note_opened(self, theme: str, session_id: str, turn: Turn) -> Sequence[Turn]:
        """Note that a turn began; returns those of the session that are still awaited."""
        noted = self._opened.pop((theme, session_id), ())
        awaited = [turn for turn in noted if turn.may_come][-OPENED_MAX:]
        if _opened_chars(opened := (*awaited, turn)) <= OPENED_CHARS_MAX:
            self._opened[theme, session_id] = opened
        return awaited

    def awaited(self, theme: str, session_id: str) -> Sequence[Turn]:
        """The turns of a session that began and were not handed over yet."""
        return [turn for turn in self._opened.get((theme, session_id), ()) if turn.may_come]

    def note_taken(self, theme: str, session_id: str, turn: Taken) -> None:
        """Note the last turn of a session that was handed over."""
        noted = self._taken.pop((theme, session_id), ())
        # The others are in its transcript no more.
        place = -1 if turn.place is None else turn.place
        before = [other for other in noted if other.place is not None and other.place < place]
        noted = [*before, turn][-TAKEN_MAX:]
        if any(turn.sides) and _taken_chars(noted) <= TAKEN_CHARS_MAX:
            self._taken[theme, session_id] = noted

    def taken(self, theme: str, session_id: str) -> Sequence[Taken]:
        """The last turns of a session that were handed over, in order."""
        return self._taken.get((theme, session_id), ())

    def unheard(
        self, theme: str, session_id: str, earlier: Sequence[str], late: Sequence[str], *, missed: int
    ) -> Sequence[str]:
        """Those corrections before a turn that were not there when the turn before was handed over.

        Hosts put what was said before the model's first answer to the last result of a tool, also of an earlier turn,
        so that no transcript tells which turn it belongs to, and hand over no turn that was interrupted. `late` are
        those up to the end of this turn. `missed` are in turns that were interrupted since this process takes part. A
        transcript that is read again from one host's record has lost some.
        """
        noted = self._corrections.get((theme, session_id))
        self._corrections[theme, session_id] = tuple(map(hash, late))
        if noted is None:
            return earlier[len(earlier) - missed :]
        known = Counter(noted)
        known.subtract(map(hash, earlier))
        unheard = []
        for said in reversed(earlier):  # Of equal ones, the last were said since.
            if known[hash(said)] < 0:
                known[hash(said)] += 1
                unheard.append(said)
        return unheard[::-1]


def _opened_chars(turns: Sequence[Turn]) -> int:
    return sum(OPENED_CHARS + len(turn.question) for turn in turns)


def _taken_chars(turns: Sequence[Taken]) -> int:
    return sum(turn.chars() for turn in turns)
