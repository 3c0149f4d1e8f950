"""The texts that an event stores as rows, and the texts that are embedded for them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..model import (
    Add,
    Attributed,
    Delegated,
    Event,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
    SessionEnded,
    TurnTaken,
    Update,
    Vector,
    Withdrawn,
)
from ..settings import Settings
from ..text.chunking import chunks
from ..text.sentences import sentences

CONTEXT_CHARS_MAX = 400


@dataclass(slots=True)
class Passage:
    """One text of an event, stored as one row. `role` is the side of a turn, "" for other rows.

    `answers` is the text before it in the session, which gives its vector context. `vector` is None until the text is
    embedded; `pieces` are then the vectors of its pieces, if it has any.
    """

    role: str
    content: str
    answers: str = ""
    vector: Vector | None = None
    pieces: Sequence[Vector] = ()

    @property
    def context(self) -> str:
        """What is embedded before the content."""
        return f"{self.answers[:CONTEXT_CHARS_MAX]}\n" if self.answers else ""

    def is_long(self, settings: Settings) -> bool:
        """Whether one vector is not enough."""
        return len(self.context) + len(self.content) > settings.embed_chars_max

    def texts(self, settings: Settings) -> list[str]:
        """The texts that are embedded for the row, each with a vector of its own.

        The first has the context and the content, or its first chunk if it is long. The others are its pieces: the
        other chunks, or the sentences of a user's message, which often states a fact beside something else.
        """
        if not self.is_long(settings):
            found = sentences(self.content, settings.embed_sentences_max) if self.role == "user" else []
            return list(dict.fromkeys([self.context + self.content, *(found if len(found) > 1 else ())]))
        first, *rest = chunks(self.content, settings.embed_piece_chars, 1 + settings.embed_pieces_max) or [self.content]
        return [self.context + first, *rest]


@dataclass(frozen=True, slots=True)
class PreparedEvent:
    """A validated event and the passages that it stores."""

    event: Event
    passages: tuple[Passage, ...]


def prepare(event: Event, answers: str = "") -> PreparedEvent:
    """The event with its passages, not embedded yet. `answers` is the last text of its session before it.

    A transcript has none: its missing turns are found when it is stored.
    """
    match event:
        case Add() | Replace() | Update():
            return PreparedEvent(event, (Passage("", event.content),))
        case TurnTaken():
            return PreparedEvent(event, _exchange(event.user, event.assistant, answers))
        case Delegated():
            return PreparedEvent(event, _exchange(event.task, event.result, ""))
        case FactWritten():
            return PreparedEvent(event, (Passage("", f"{event.target}: {event.content}"),))
        case Remove() | Attributed() | SessionEnded() | Withdrawn() | FactsTicked() | FactsPurged():
            return PreparedEvent(event, ())


def _exchange(question: str, answer: str, before: str) -> tuple[Passage, ...]:
    sides = Passage("user", question, before), Passage("assistant", answer, question)
    return tuple(side for side in sides if side.content)
