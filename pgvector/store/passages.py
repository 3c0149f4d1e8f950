"""The texts that an event stores as rows, and what is embedded for each."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Withdrawn
from ..settings import Settings
from ..text.chunking import pieces

CONTEXT_CHARS_MAX = 400


@dataclass(frozen=True, slots=True)
class Passage:
    """A text to be stored, and what it answers: the text before it in the session, which tells what it is about."""

    role: str
    content: str
    answers: str = ""

    @property
    def embedded(self) -> str:
        """The text whose vector stands for this passage."""
        return f"{self.answers[:CONTEXT_CHARS_MAX]}\n{self.content}" if self.answers else self.content

    def pieces(self, settings: Settings) -> list[str]:
        """The parts whose vectors stand beside that of the passage; none unless it is too long for one."""
        if len(self.embedded) <= settings.embed_chars_max:
            return []
        return pieces(self.content, settings.embed_piece_chars, settings.embed_pieces_max)


def passages(event: Event, answers: str = "") -> tuple[Passage, ...]:
    """What an event stores; `answers` is the last thing said in its session. Transcripts are embedded later."""
    match event:
        case Add() | Replace():
            return (Passage(event.target, event.content),)
        case TurnTaken():
            return _exchange(event.user, event.assistant, answers)
        case Delegated():
            return _exchange(event.task, event.result, "")
        case Remove() | SessionEnded() | Withdrawn():
            return ()


def _exchange(question: str, answer: str, before: str) -> tuple[Passage, ...]:
    told = Passage("user", question, before)
    replied = Passage("assistant", answer, question)
    return tuple(passage for passage in (told, replied) if passage.content)
