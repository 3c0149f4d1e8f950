"""Memory entries and their history: listed, looked up, changed by events, deleted, restored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import DictRow

from pgvector import HalfVector

from ..model import Add, Metadata, Remove, Replace
from ..text import tokenizer
from .connection.database import Connection
from .queries import QUERIES

# What the history says about the rows that an event deletes.
_HOW = {Add: "moved", Replace: "replaced", Remove: "removed"}


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


@dataclass(frozen=True, slots=True)
class Past(Entry):
    """An entry as it was until `gone_at`; `id` is that in the history.

    `how` is replaced, removed, edited (in place) or moved (to another theme). `session_id` is empty when no agent
    changed it.
    """

    entry_id: int
    gone_at: datetime
    how: str
    session_id: str
    replaced_by: str | None


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


def apply(connection: Connection, event: Add | Replace | Remove, vector: HalfVector | None) -> None:
    """Apply a change that the ledger does not have yet, in the caller's transaction."""
    # Each statement takes the fields that it names.
    values = {
        **asdict(event), "metadata": json.dumps(dict(event.metadata)), "embedding": vector, "how": _HOW[type(event)],
        "replaced_by": event.content if isinstance(event, Replace) else None,
    }  # fmt: skip
    match event:
        case Add():
            if event.metadata.get("origin") == "remember":
                # An entry that the agent asks to remember is kept when its line is removed from the file.
                connection.execute(QUERIES["detach_entry"], values)
            elif not event.from_file:
                moved = connection.execute(QUERIES["delete_entry_of_other_themes"], values).fetchall()
                _complete_history(connection, moved, values)
            _add(connection, {**values, "created_at": event.at})
        case Replace():
            kept = _remove(connection, event, values) or {"created_at": event.at}
            _add(connection, {**values, **kept, "from_file": False})
        case Remove():
            _remove(connection, event, values)


def _add(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.execute(QUERIES["add_entry"], {**values, "words": tokenizer.document(values["content"])})


def _remove(connection: Connection, event: Replace | Remove, values: Mapping[str, Any]) -> DictRow | None:
    """Delete the row of the old entry; returns its theme, id and creation time, or None when there is none.

    A tombstone keeps older adds of its home from storing it again: the processes of a home are not in step.
    """
    content = event.previous or _resolve(connection, event, values)
    if not content:
        return None
    values = {**values, "content": content}
    if isinstance(event, Remove) or event.content != content:
        connection.execute(QUERIES["add_tombstone"], values)
    if isinstance(event, Remove) and event.from_file:
        removed = connection.execute(QUERIES["delete_entry_of_home"], values).fetchall()
        _complete_history(connection, removed, values)
        if removed:
            return None
    row = connection.execute(QUERIES["find_entry"], values).fetchone()
    if row is not None:
        connection.execute(QUERIES["delete_entry"], row)
        _complete_history(connection, [row], values)
    return row


def _resolve(connection: Connection, event: Replace | Remove, values: Mapping[str, Any]) -> str:
    """The whole text of the one entry that contains `old_text`; empty when none or several do.

    Only rows of the event's home count, and rows of no home. If rows of the event's theme are found, only these count.
    """
    if not event.old_text:
        return ""
    surviving = [*event.surviving, *([event.content] if isinstance(event, Replace) else [])]
    rows = connection.execute(QUERIES["entries_containing"], {**values, "surviving": surviving}).fetchall()
    nearest = [row for row in rows if row["theme"] == event.theme] or rows
    return str(nearest[0]["content"]) if len({row["content"] for row in nearest}) == 1 else ""


def delete(connection: Connection, theme: str, number: int, *, session_id: str, at: datetime) -> Entry | None:
    """Delete an entry in the caller's transaction and return it; None when the theme has no such id.

    The history keeps it, with the session and the time that are given.
    """
    values = {"theme": theme, "id": number, "session_id": session_id, "at": at, "how": "removed", "replaced_by": None}
    row = connection.execute(QUERIES["delete_entry"], values).fetchone()
    if row is None:
        return None
    _complete_history(connection, [row], values)
    return Entry(**row)


def _complete_history(connection: Connection, deleted: Iterable[DictRow], values: Mapping[str, Any]) -> None:
    """Add how, when and by which session rows were deleted to the history rows that a trigger has just inserted."""
    for row in deleted:
        connection.execute(QUERIES["complete_history"], {**values, "theme": row["theme"], "id": row["id"]})


def past_entries(
    connection: Connection,
    limit: int,
    *,
    theme: str = "",
    target: str = "",
    since: datetime | None = None,
    number: int | None = None,
) -> list[Past]:
    """Up to `limit` past entries, the last change first; narrowed to a theme, a target, a time or an id."""
    parameters = {"theme": theme, "target": target, "since": since, "id": number, "limit": limit}
    return [Past(**row) for row in connection.execute(QUERIES["list_history"], parameters)]


def restore(connection: Connection, entry: Past) -> int | None:
    """Insert a past entry into its theme again; returns its new id, or None when the theme has this content already.

    It keeps its creation time. It gets its vector from a running agent, or from `backfill`.
    """
    metadata = dict(entry.metadata)
    if metadata.get("origin") != "remember":
        # It may be in no file, so a change of a file means it only by its whole text.
        metadata["origin"] = "undo"
    words = tokenizer.document(entry.content)
    parameters = {"theme": entry.theme, "id": entry.id, "words": words, "metadata": json.dumps(metadata)}
    row = connection.execute(QUERIES["restore_entry"], parameters).fetchone()
    return int(row["id"]) if row else None


def erase(connection: Connection, theme: str, content: str) -> None:
    """Delete a removed content of a theme from the history and from the tombstones."""
    for statement in ("erase_history", "erase_tombstone"):
        connection.execute(QUERIES[statement], {"theme": theme, "content": content})
