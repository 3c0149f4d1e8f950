"""Makes an event storable, or says why it never can be: the one place where stored text is cleaned. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import BadEvent
from ..model import TARGETS, Add, Event, Remove, Replace
from ..settings import Settings
from ..text.cleaning import clean, clean_metadata, cut


def validate(event: Event, settings: Settings) -> Event:
    """The event with texts that Postgres takes: no NUL, no lone surrogate, at most `content_chars_max` characters.

    Raises BadEvent when its target is unknown or its entry is empty.
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
    }
    if isinstance(event, Add | Replace | Remove) and event.target not in TARGETS:
        raise BadEvent(f"target is {str(event.target)[:40]!r}; it must be one of {', '.join(TARGETS)}")
    cleaned: dict[str, Any] = {
        name: cleaner(getattr(event, name)) for name, cleaner in cleaners.items() if hasattr(event, name)
    }
    if cleaned.get("content") == "":
        raise BadEvent("the entry is empty")
    return replace(event, **cleaned)
