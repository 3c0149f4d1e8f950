"""Earlier texts of entries, which were replaced, removed or have expired: listed and restored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ..model import Update, now
from ..text import tokenizer
from . import entries
from .connection import entry_homes
from .connection.database import Connection
from .entries import Entry
from .queries import QUERIES


@dataclass(frozen=True, slots=True)
class Past(Entry):
    """An entry as it was until `gone_at`; `id` is that in the history.

    `how` is replaced, removed, expired, edited (in place) or moved (to another theme). `session_id` is empty when no
    agent changed it.
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
    entries: Sequence[int] | None = None,
) -> list[Past]:
    """Up to `limit` past entries, the last change first; narrowed to a theme, a target, a time, an id, or those that
    had one of the ids `entries`.
    """
    parameters = {
        "theme": theme, "target": target, "since": since, "id": number, "limit": limit,
        "entries": None if entries is None else list(entries),
    }  # fmt: skip
    return [Past(**row) for row in connection.execute(QUERIES["list_history"], parameters)]


def restore(connection: Connection, entry: Past, *, replaces: Sequence[int] = ()) -> int | None:
    """Insert a past entry into its theme again; returns its new id, or None when the theme has this content already.

    It keeps its creation time, its tags, and an expiry that is still to come; `replaces` are the ids that it takes the
    place of. It gets its vector from a running agent, or from `backfill`.
    """
    metadata = dict(entry.metadata)
    if metadata.get("origin") != "remember":
        # It may be in no file, so a change of a file means it only by its whole text.
        metadata["origin"] = "undo"
    parameters = {
        "theme": entry.theme, "id": entry.id, "words": tokenizer.document(entry.content),
        "metadata": json.dumps(metadata), "replaces": list(replaces) or None,
    }  # fmt: skip
    entry_homes.note(connection, entry.theme, entry.home, entry.target, entry.content)
    row = connection.execute(QUERIES["restore_entry"], parameters).fetchone()
    return int(row["id"]) if row else None


def take_back(connection: Connection, entry: Past) -> tuple[int | None, str | None]:
    """Restore a past entry in place of the one that has replaced it by a correction, if there is one.

    Returns the id of the restored row, None when the theme has its text already, and the text of the entry whose place
    it takes, which goes into the history. Call it in a transaction.
    """
    successor = entries.to_replace(connection, entry.theme, entry.entry_id) if entry.how == "replaced" else None
    if successor is None:
        return restore(connection, entry), None
    same = entries.entry_with(connection, entry.theme, entry.target, entry.content)
    if same is not None and (same.id != successor["id"] or _equal(same, entry)):
        return None, None
    number = successor["id"]
    entries.delete(connection, entry.theme, number, session_id="", at=now(), replaced_by=entry.content)
    return restore(connection, entry, replaces=entries.successor_ids(successor)), successor["content"]


def _equal(there: Entry, entry: Past) -> bool:
    """Whether an entry with the text of `entry` is what `restore` would make of it."""
    expires_at = entry.expires_at if entry.expires_at and entry.expires_at > now() else None
    return sorted(there.tags) == sorted(entry.tags) and there.expires_at == expires_at


def update_seen(connection: Connection, event: Update, seen: str) -> Entry | None:
    """Apply an update by a person, unless the entry has another text than was `seen`: returns it as it is then.

    Call it in a transaction. Raises BadEvent when the entry is gone.
    """
    row, current = entries.to_replace(connection, event.theme, event.entry_id), None
    if row is not None and (row["id"], row["content"]) != (event.entry_id, seen):
        # None when that one has expired: then there is nothing to update, either.
        current = entries.with_id(connection, event.theme, row["id"])
    if current is None:
        entries.apply(connection, event, None)
    return current
