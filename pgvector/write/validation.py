"""Makes an event storable, or says why it never can be: the one place where stored text is cleaned. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..errors import BadArgument, BadEvent
from ..model import (
    FACT_KINDS,
    FACT_SCOPE_CHARS_MAX,
    FACT_TARGET_CHARS_MAX,
    TARGETS,
    Add,
    Event,
    FactEvent,
    FactsPurged,
    FactsTicked,
    FactWritten,
    Remove,
    Replace,
)
from ..settings import Settings
from ..text.cleaning import clean, clean_entry, clean_metadata, cut
from ..text.tags import normalised
from ..text.times import NEVER

TURN_MAX, PURGE_DAYS_MAX = 1 << 31, 36_500


def validate(event: Event, settings: Settings) -> Event:
    """The event with texts that Postgres takes: no NUL, no lone surrogate, at most `content_chars_max` characters.

    Raises BadEvent when its target is unknown, its entry is empty, its tags or its expiry are invalid, or a fact is
    beyond its bounds.
    """
    if isinstance(event, FactWritten | FactsTicked | FactsPurged):
        event = _of_facts(event, settings)

    def text(value: str) -> str:
        return cut(clean(value), settings.content_chars_max)

    def entry(value: str) -> str:
        return clean_entry(value, settings.content_chars_max)

    cleaners: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("theme", "home", "session_id", "parent_session_id", "child_session_id", "old_text"), clean),
        **dict.fromkeys(("ancestors", "continued"), lambda sessions: tuple(map(clean, sessions))),
        "metadata": clean_metadata,
        **dict.fromkeys(("user", "assistant", "task", "result"), text),
        "turns": lambda turns: tuple((text(user), text(assistant)) for user, assistant in turns),
        # The old text of an entry is cleaned like the new one, else it is not found again.
        **dict.fromkeys(("content", "previous"), entry),
        "surviving": lambda entries: tuple(map(entry, entries)),
        "saves": lambda saves: tuple(map(clean, saves)),
        "tags": lambda tags: tags if tags is None else normalised(tags),
        "expires": _expiry,
    }
    if isinstance(event, Add | Replace | Remove) and event.target not in TARGETS:
        raise BadEvent(f"target is {str(event.target)[:40]!r}; it must be one of {', '.join(TARGETS)}")
    try:
        cleaned = {name: cleaner(getattr(event, name)) for name, cleaner in cleaners.items() if hasattr(event, name)}
    except BadArgument as error:
        raise BadEvent(str(error)) from None
    if cleaned.get("content") == "":
        raise BadEvent("the entry is empty")
    return replace(event, **cleaned)


def _of_facts(event: FactEvent, settings: Settings) -> FactEvent:
    """An event of facts with its texts on one line each; raises BadEvent for what is beyond a bound, and never cuts."""

    def line(name: str, chars_max: int, *, required: bool = True) -> str:
        text = " ".join(filter(None, map(str.strip, clean(getattr(event, name)).splitlines())))
        if required and not text:
            raise BadEvent(f"the {name} of the fact is empty")
        if len(text) > chars_max:
            raise BadEvent(f"the {name} of the fact has {len(text)} characters; at most {chars_max} are stored")
        return text

    match event:
        case FactsTicked():
            if not 0 <= event.turn < TURN_MAX:
                raise BadEvent(f"turn is {event.turn}; it must be from 0 to {TURN_MAX - 1}")
            return event
        case FactsPurged():
            if event.older_than_days is not None and not 0 <= event.older_than_days <= PURGE_DAYS_MAX:
                raise BadEvent(f"older_than_days is {event.older_than_days}; it must be from 0 to {PURGE_DAYS_MAX}")
            return replace(event, scope=line("scope", FACT_SCOPE_CHARS_MAX, required=False))
    if event.kind not in FACT_KINDS:
        raise BadEvent(f"kind is {str(event.kind)[:40]!r}; it must be one of {', '.join(FACT_KINDS)}")
    return replace(
        event,
        target=line("target", FACT_TARGET_CHARS_MAX),
        content=line("content", settings.facts_text_chars_max),
        scope=line("scope", FACT_SCOPE_CHARS_MAX, required=False),
    )


def _expiry(text: str) -> str:
    """An expiry as it is stored. Raises BadEvent."""
    try:
        return text if text in ("", NEVER) else datetime.fromisoformat(text).isoformat()
    except ValueError:
        raise BadEvent(f"expires is {text[:40]!r}; it must be a time in ISO 8601, or {NEVER}") from None
