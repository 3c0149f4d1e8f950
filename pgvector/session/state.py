"""The state of a conversation: the sessions before it and its turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from ..hosts.additions import PICTURES
from ..model import now

ANCESTORS_MAX = 20
INTERRUPTED_MAX = 100
PENDING_MAX = 100
IN_DOUBT_MAX = 8
SAVES_MAX = 200
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

    def parent_of(self, session_id: str) -> str:
        """The session before this one, or before the one of its ancestors with this id; empty when there is none."""
        later = self.ancestors.index(session_id) if session_id in self.ancestors else len(self.ancestors)
        return self.ancestors[later - 1] if later else ""

    def after(self, session_id: str, *, new: bool, reason: str) -> Lineage:
        """The lineage of the session that follows `session_id`. Unless it is `new`, it goes on with its transcript."""
        compressed = (*self.compressed, session_id)[-ANCESTORS_MAX:] if reason == "compression" else ()
        if new or reason == "resume":
            # The ancestors of a resumed session are in the host's record.
            return Lineage((), compressed)
        return Lineage((*self.ancestors, session_id)[-ANCESTORS_MAX:], compressed)


@dataclass(slots=True, eq=False)
class Turn:
    """A turn that was opened. It is open until the host hands it over.

    `unsaid` is whether no message may tell that it is off the record. `replayed` is the session and answer of the
    transcript that stored it before it was handed over.
    """

    question: str = ""
    author_id: str = ""
    theme: str = ""
    session_id: str = ""
    off_record: bool = False
    unsaid: bool = False
    is_open: bool = True
    # Whether what is kept of it was accepted, or a replay was found to have it.
    is_taken: bool = False
    # Hosts hand over turns in order: False once a turn was handed over that was opened later.
    awaited: bool = True
    began: datetime = field(default_factory=now)
    replayed: tuple[str, str] | None = None
    # What was stored of it when a later one was handed over; of two requests at once, it may only have been slower.
    passed_as: tuple[str, str] | None = None
    # The entries that the host's tool saved: the id of each call, and that of the save.
    saves: list[tuple[str, str]] = field(default_factory=list)

    @property
    def may_come(self) -> bool:
        """Whether it may still be handed over, as far as is known."""
        return self.is_open and self.awaited

    def note_save(self, call_id: str, save_id: str) -> None:
        """Note that a call saved an entry. Past SAVES_MAX of a turn none is noted."""
        if len(self.saves) < SAVES_MAX:
            self.saves.append((call_id, save_id))


class Save(NamedTuple):
    """An entry that the host's tool saved: the question of the turn, the id of the call, and that of the save."""

    question: str
    call_id: str
    save_id: str


class Taken(NamedTuple):
    """A turn that was handed over on the record: its question, and its sides that are stored, the others empty.

    `place` is how many messages were before it in its transcript; None when that is not known.
    """

    question: str
    sides: tuple[str, str]
    place: int | None

    def chars(self) -> int:
        """The length of its texts."""
        return len(self.question) + sum(map(len, self.sides))


class Turns:
    """The turn that was opened last, and what later hooks must know of earlier ones. Not thread-safe.

    Hosts hand over a turn late, when other turns were opened and the session was switched meanwhile, or never, if it
    was interrupted. Past 100 pending turns the oldest are forgotten. `withdrawn` are turns of this session, or of one
    that it continues, that were taken back. `withdrawn_question` is that of a turn that was taken back while it was
    open: the host may still hand it over.
    """

    def __init__(self) -> None:
        self.current = Turn(is_open=False, is_taken=True)
        self.any_off_record = False
        self.withdrawn: frozenset[tuple[str, str]] = frozenset()
        # When the last of them was said, in seconds since 1970.
        self.withdrawn_until = 0.0
        self.withdrawn_question: str | None = None
        self._pending: deque[Turn] = deque(maxlen=PENDING_MAX)
        # Questions of turns that the outbox refused.
        self.refused: deque[str] = deque(maxlen=PENDING_MAX)
        # The turns before the one that was handed over last, which are never handed over.
        self.passed: list[Turn] = []
        # What was stored of the turn that was handed over last when it was one of these.
        self.passed_as: tuple[str, str] | None = None
        # Whether no message may tell that it was off the record.
        self.unsaid = False
        # Questions on the record whose turn was not handed over when the next one was opened: a replay contains a
        # partial answer.
        self._interrupted: deque[str] = deque(maxlen=INTERRUPTED_MAX)
        # The last turns that may have been off the record: a replay contains them in order and shows which were not.
        self.in_doubt: deque[tuple[str, str]] = deque(maxlen=IN_DOUBT_MAX)

    def open(self, turn: Turn, awaited: Iterable[Turn] = ()) -> None:
        """Begin a turn. `awaited` are those of its session before it that may still be handed over, also to others."""
        self._pending.extend(other for other in awaited if other not in self._pending)
        before, self.current = self.current, turn
        # A replay leaves out what is off the record, and repeats a question that is asked again on the record.
        if before.is_open and before.question and not before.off_record:
            self._interrupted.append(before.question)
        if self.withdrawn_question == turn.question:
            # It is asked again. If the turn that was taken back was interrupted, it is never handed over.
            self.withdrawn_question = None
        self.any_off_record = self.any_off_record or turn.off_record
        self._pending.append(turn)

    def author(self, question: str) -> str | None:
        """The id of who asked a question that is handed over now, empty when no host told; None for one of several.

        Hosts hand over some turns with another text than they open them: then all turns that may still come count.
        """
        question = self._opened_as(question)
        awaited = [turn for turn in self._pending if turn.awaited]
        asked = [turn for turn in awaited if turn.question == question] or awaited or [self.current]
        authors = {turn.author_id for turn in asked}
        return authors.pop() if len(authors) == 1 else None

    def awaits(self, question: str) -> bool:
        """Whether a turn on the record with this question was not handed over yet, or was refused then."""
        return question in self.refused or any(
            turn.question == question and not turn.off_record for turn in self._pending
        )

    def saves(self, question: str | None = None) -> list[Save]:
        """The saves of the turn of a question that is handed over now, and of interrupted ones before it.

        Without a question, or when no such turn was opened, those of all that were not handed over, and of the last.
        """
        question = question and self._opened_as(question)
        awaited = [turn for turn in self._pending if turn.awaited]
        asked = next((place for place, turn in enumerate(awaited, 1) if turn.question == question), None)
        turns = awaited[:asked] if asked else dict.fromkeys((*awaited, self.current))
        return [Save(turn.question, call, save) for turn in turns for call, save in turn.saves]

    def hand_over(self, question: str) -> bool | None:
        """Whether the turn of a question may have been off the record when it was opened; None when none was opened."""
        question, self.passed, self.passed_as, self.unsaid = self._opened_as(question), [], None, False
        if question == self.current.question:
            self.current.is_open = False
        elif question in self._interrupted:
            # It was not interrupted, only handed over late.
            self._interrupted.remove(question)
        asked = [turn for turn in self._pending if turn.question == question]
        if not asked:
            # Hosts hand over some turns, such as those with a picture, with another text than they open them.
            if off := [turn for turn in self._pending if turn.off_record and turn.awaited]:
                self.unsaid = any(turn.unsaid for turn in off)
                return True
            self.current.is_open = False
            return None
        awaited = [turn for turn in asked if turn.awaited] or asked
        before = takewhile(lambda turn: turn is not awaited[0], self._pending)
        for turn in [turn for turn in before if turn.awaited]:
            turn.awaited = False
            if turn.is_open:  # Another provider object may have got it.
                self.passed.append(turn)
        # A question that was asked on and off the record may be either: the one off the record stays for the next.
        taken = next((turn for turn in (*awaited, *asked) if not turn.off_record), awaited[0])
        taken.is_open, self.passed_as = False, taken.passed_as if taken in awaited else None
        self._pending.remove(taken)
        self.unsaid = any(turn.unsaid for turn in asked)
        return any(turn.off_record for turn in asked)

    def is_known(self, turn: Turn, sides: tuple[str, str], last: Taken | None) -> bool:
        """Whether a turn with these sides is the `last` one, or was taken back and not said again since."""
        withdrawn = sides in self.withdrawn and turn.began.timestamp() <= self.withdrawn_until
        return withdrawn or (last is not None and (turn.question, sides[1]) == (last.question, last.sides[1]))

    def _opened_as(self, question: str) -> str:
        """The text with which the turn of a question was opened: one host adds how many pictures it has afterwards."""
        pictures = PICTURES.match(question)
        words = question[pictures.end() :].split() if pictures else None
        return next((turn.question for turn in self._pending if turn.question.split() == words), question)

    def complete(self, turn: tuple[str, str]) -> bool:
        """Whether a replayed turn on the record was answered in full."""
        return turn[0] not in self._interrupted or turn in self.in_doubt
