"""Makes an event storable, or says why it never can be: the one place where stored text is cleaned. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from ..errors import BadArgument, BadEvent
from ..model import TARGETS, Add, Event, Remove, Replace
from ..settings import Settings
from ..text.cleaning import clean, clean_metadata, cut
from ..text.tags import normalised
from ..text.times import NEVER


def validate(event: Event, settings: Settings) -> Event:
    """The event with texts that Postgres takes: no NUL, no lone surrogate, at most `content_chars_max` characters.

    Raises BadEvent when its target is unknown, its entry is empty, or its tags or its expiry are none.
    """

    def text(value: str) -> str:
        return cut(clean(value), settings.content_chars_max)

    def entry(value: str) -> str:
        return cut(clean(value).strip(), settings.content_chars_max)

    cleaners: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("theme", "home", "session_id", "parent_session_id", "child_session_id", "old_text"), clean),
        **dict.fromkeys(("ancestors", "continued"), lambda sessions: tuple(map(clean, sessions))),
        "metadata": clean_metadata,
        **dict.fromkeys(("user", "assistant", "task", "result"), text),
        "turns": lambda turns: tuple((text(user), text(assistant)) for user, assistant in turns),
        # The old text of an entry is cleaned like the new one, else it is not found again.
        **dict.fromkeys(("content", "previous"), entry),
        "surviving": lambda entries: tuple(map(entry, entries)),
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


def _expiry(text: str) -> str:
    """An expiry as it is stored; raises ValueError for any other text."""
    return text if text in ("", NEVER) else datetime.fromisoformat(text).isoformat()
