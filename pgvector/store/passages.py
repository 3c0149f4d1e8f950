"""The texts that an event stores as rows, and the texts that are embedded for them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Vector, Withdrawn
from ..settings import Settings
from ..text.chunking import chunks

CONTEXT_CHARS_MAX = 400


@dataclass(slots=True)
class Passage:
    """One text of an event, stored as one row.

    `answers` is the text before it in the session, which gives its vector context. `vector` is None until the text is
    embedded.
    """

    role: str
    content: str
    answers: str = ""
    vector: Vector | None = None

    @property
    def embedded(self) -> str:
        """The text that is embedded for the row."""
        return f"{self.answers[:CONTEXT_CHARS_MAX]}\n{self.content}" if self.answers else self.content

    def chunks(self, settings: Settings) -> list[str]:
        """The chunks of a long text, each embedded besides the text itself; empty when one vector is enough."""
        if len(self.embedded) <= settings.embed_chars_max:
            return []
        return chunks(self.content, settings.embed_piece_chars, settings.embed_pieces_max)


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
        case Add() | Replace():
            return PreparedEvent(event, (Passage(event.target, event.content),))
        case TurnTaken():
            return PreparedEvent(event, _exchange(event.user, event.assistant, answers))
        case Delegated():
            return PreparedEvent(event, _exchange(event.task, event.result, ""))
        case Remove() | SessionEnded() | Withdrawn():
            return PreparedEvent(event, ())


def _exchange(question: str, answer: str, before: str) -> tuple[Passage, ...]:
    sides = Passage("user", question, before), Passage("assistant", answer, question)
    return tuple(side for side in sides if side.content)
