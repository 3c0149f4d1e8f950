"""What the tools share: events that are accepted or refused, and rows that are read within a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..errors import DatabaseUnavailable, Refused, SchemaNotApplied, Unavailable
from ..model import Caller, Event
from ..runtime import Runtime

if TYPE_CHECKING:
    from ..store.connection.database import Connection

T = TypeVar("T")


def check_on_record(caller: Caller) -> None:
    """Raise Refused when the session of the caller is off the record."""
    if caller.off_record:
        raise Refused("nothing is stored, because this session is off the record")


def check_kept(caller: Caller, text: str) -> None:
    """Raise Refused when the setting `keep` refuses this text."""
    if refused := caller.refusal(text):
        raise Refused(f"nothing is stored, because {refused}")


def accept(runtime: Runtime, event: Event) -> None:
    """Make an event durable. Raises DatabaseUnavailable when it cannot be kept."""
    if not runtime.accept(event):
        raise DatabaseUnavailable("nothing is stored: the spool is full or cannot be written")


def read(runtime: Runtime, theme: str, reading: Callable[[Connection, str], T], budget_s: float) -> T:
    """What `reading` finds in the theme that the rows of a theme are stored under. Raises Unavailable."""
    from ..store.person_links import person_of  # which takes long to import: a host loads the tools at its start

    with runtime.database.connection(budget_s, within_s=budget_s) as connection:
        return reading(connection, person_of(connection, theme))


def read_when_settled(runtime: Runtime, theme: str, reading: Callable[[Connection, str], T]) -> T:
    """What `reading` finds once accepted events are stored, all within `recall_budget_s`. Raises Unavailable."""
    budget_s = runtime.settings.recall_budget_s
    until = time.monotonic() + budget_s
    runtime.writer.flush(budget_s / 2)
    return read(runtime, theme, reading, until - time.monotonic())


def read_if_there(runtime: Runtime, theme: str, reading: Callable[[Connection, str], T], budget_s: float) -> T | None:
    """What `reading` finds; None while the database does not answer."""
    try:
        return read(runtime, theme, reading, budget_s)
    except (Unavailable, SchemaNotApplied):
        return None
