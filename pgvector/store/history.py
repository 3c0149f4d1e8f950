"""What entries said before they were replaced, removed or edited, and the way back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from ..model import Metadata
from ..text import tokenizer
from .connection.database import Connection
from .queries import QUERIES

# Metadata of a restored entry: it may be in no file, so that a change of a file can mean it by its whole text only.
RESTORED = {"origin": "undo"}


@dataclass(frozen=True, slots=True)
class Past:
    """An entry as it was until `gone_at`. `how` it went: replaced, removed, edited (in place), or moved to a theme.

    `session_id` is empty and `replaced_by` may be known when somebody else than an agent did it.
    """

    id: int
    theme: str
    entry_id: int
    home: str
    target: str
    content: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata
    gone_at: datetime
    how: str
    session_id: str
    replaced_by: str | None


def past(
    connection: Connection,
    limit: int,
    *,
    theme: str = "",
    target: str = "",
    since: datetime | None = None,
    number: int | None = None,
) -> list[Past]:
    """The entries that went last, newest first: of all themes or one, both targets or one, or the one of an id."""
    parameters = {"theme": theme, "target": target, "since": since, "id": number, "limit": limit}
    return [Past(**row) for row in connection.execute(QUERIES["list_history"], parameters)]


def restore(connection: Connection, entry: Past) -> int | None:
    """Bring an entry back into its theme, with its birthday; its id, or None when the theme has it already.

    It gets its vector from a running agent, or from `backfill`.
    """
    metadata = dict(entry.metadata)
    if metadata.get("origin") != "remember":
        metadata |= RESTORED
    parameters = {
        "theme": entry.theme,
        "id": entry.id,
        "words": tokenizer.document(entry.content),
        "metadata": json.dumps(metadata),
    }
    row = connection.execute(QUERIES["restore_entry"], parameters).fetchone()
    return int(row["id"]) if row else None


def erase(connection: Connection, theme: str, content: str) -> None:
    """Leave no trace of a text that was removed from a theme."""
    for statement in ("erase_history", "erase_tombstone"):
        connection.execute(QUERIES[statement], {"theme": theme, "content": content})


def prune(connection: Connection, days: int) -> int:
    """Forget up to 10,000 entries that went more than `days` days ago. Returns how many."""
    return connection.execute(QUERIES["prune_history"], {"days": days}).rowcount
