"""The entries of one theme as such: listed, looked at, forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..model import Metadata
from .connection.database import Connection
from .queries import QUERIES


@dataclass(frozen=True, slots=True)
class Stored:
    """A row of memory_entries. `home` is empty when no home's file stands for it."""

    theme: str
    id: int
    home: str
    target: str
    content: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata


def page(
    connection: Connection, theme: str, limit: int, *, target: str = "", before: int | None = None
) -> list[Stored]:
    """The `limit` entries that were stored last, of those with an id below `before`."""
    parameters = {"theme": theme, "target": target, "before": before, "limit": limit}
    return [Stored(**row) for row in connection.execute(QUERIES["theme_entries"], parameters)]


def profile(connection: Connection, theme: str) -> Mapping[str, tuple[int, datetime]]:
    """How many entries a theme has of each target, and the time of the newest."""
    rows = connection.execute(QUERIES["theme_profile"], {"theme": theme})
    return {row["target"]: (row["entries"], row["newest"]) for row in rows}


def same(connection: Connection, theme: str, target: str, content: str) -> Stored | None:
    """The entry of a theme that says exactly this."""
    key = {"theme": theme, "target": target, "content": content}
    row = connection.execute(QUERIES["same_entry"], key).fetchone()
    return Stored(**row) if row else None


def forget(connection: Connection, theme: str, number: int, *, session_id: str, at: datetime) -> Stored | None:
    """Take an entry out, in the caller's transaction; it goes into the history. None when the theme has no such id."""
    key = {"theme": theme, "id": number}
    row = connection.execute(QUERIES["delete_entry"], key).fetchone()
    if row is None:
        return None
    told = {"how": "removed", "session": session_id, "at": at, "replaced_by": None}
    connection.execute(QUERIES["tell_history"], {**key, **told})
    return Stored(**row)
