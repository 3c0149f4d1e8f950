"""Entries that were replaced, removed or edited: listed, restored, erased, pruned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from ..text import tokenizer
from .connection.database import Connection
from .entries import Entry
from .queries import QUERIES


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


def prune(connection: Connection, days: int) -> int:
    """Delete up to 10,000 past entries that are older than `days` days; returns how many."""
    return connection.execute(QUERIES["prune_history"], {"days": days}).rowcount
