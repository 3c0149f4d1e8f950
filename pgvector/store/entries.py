"""The entries of one theme: counted, listed, looked up, deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..model import Metadata
from .connection.database import Connection
from .queries import QUERIES


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of memory_entries. `home` is empty when the entry is in the file of no home."""

    theme: str
    id: int
    home: str
    target: str
    content: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata


def newest(
    connection: Connection, theme: str, limit: int, *, target: str = "", before: int | None = None
) -> list[Entry]:
    """The `limit` entries with the highest ids, highest first; of one target, or with ids below `before` only."""
    parameters = {"theme": theme, "target": target, "before": before, "limit": limit}
    return [Entry(**row) for row in connection.execute(QUERIES["list_entries"], parameters)]


def count_by_target(connection: Connection, theme: str) -> Mapping[str, tuple[int, datetime]]:
    """The number of entries of each target that a theme has, and the time of the last change."""
    rows = connection.execute(QUERIES["count_by_target"], {"theme": theme})
    return {row["target"]: (row["entries"], row["newest"]) for row in rows}


def entry_with(connection: Connection, theme: str, target: str, content: str) -> Entry | None:
    """The entry of a theme with exactly this content, or None."""
    key = {"theme": theme, "target": target, "content": content}
    row = connection.execute(QUERIES["entry_with_content"], key).fetchone()
    return Entry(**row) if row else None


def delete(connection: Connection, theme: str, number: int, *, session_id: str, at: datetime) -> Entry | None:
    """Delete an entry in the caller's transaction and return it; None when the theme has no such id.

    The history keeps it, with the session and the time that are given.
    """
    key = {"theme": theme, "id": number}
    row = connection.execute(QUERIES["delete_entry"], key).fetchone()
    if row is None:
        return None
    details = {"how": "removed", "session": session_id, "at": at, "replaced_by": None}
    connection.execute(QUERIES["complete_history"], {**key, **details})
    return Entry(**row)
