"""Makes an event fit for Postgres, or says why it never can be. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..errors import BadEvent
from ..model import TARGETS, Add, Delegated, Event, Remove, Replace, SessionEnded, TurnTaken, Withdrawn
from ..settings import Settings
from ..text.cleaning import clean, clean_metadata, cut


def prepare(event: Event, settings: Settings) -> Event:
    """The event with texts that Postgres takes: no NUL, no lone surrogate, at most `content_chars_max` characters.

    Raises BadEvent when no meaning is left to store.
    """

    def text(value: str) -> str:
        return cut(clean(value), settings.content_chars_max)

    event = replace(
        event,
        theme=clean(event.theme),
        home=clean(event.home),
        session_id=clean(event.session_id),
        metadata=clean_metadata(event.metadata),
    )
    match event:
        case Add() | Replace() | Remove():
            return _prepare_entry(event, settings)
        case TurnTaken():
            parent = clean(event.parent_session_id)
            return replace(event, user=text(event.user), assistant=text(event.assistant), parent_session_id=parent)
        case Delegated():
            child = clean(event.child_session_id)
            return replace(event, task=text(event.task), result=text(event.result), child_session_id=child)
        case Withdrawn():
            gone = tuple((text(user), text(assistant)) for user, assistant in event.turns)
            return replace(event, turns=gone, continued=tuple(map(clean, event.continued)))
        case SessionEnded():
            parent = clean(event.parent_session_id)
            turns = tuple((text(user), text(assistant)) for user, assistant in event.turns)
            ancestors = tuple(clean(session) for session in event.ancestors)
            return replace(event, turns=turns, parent_session_id=parent, ancestors=ancestors)


def _prepare_entry(event: Add | Replace | Remove, settings: Settings) -> Event:
    def entry(value: str) -> str:
        # The old text goes the same way as the new one, or it would not be found again.
        return cut(clean(value).strip(), settings.content_chars_max)

    if event.target not in TARGETS:
        raise BadEvent(f"target is {str(event.target)[:40]!r}; it must be one of {', '.join(TARGETS)}")
    if not isinstance(event, Add):
        surviving = tuple(map(entry, event.surviving))
        event = replace(event, previous=entry(event.previous), old_text=clean(event.old_text), surviving=surviving)
    if isinstance(event, Remove):
        return event
    content = entry(event.content)
    if not content:
        raise BadEvent("the entry is empty")
    return replace(event, content=content)
