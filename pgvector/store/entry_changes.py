"""Changes of entries become rows: added, replaced, removed, and told to the history."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pgvector import HalfVector

from ..model import Add, Remove, Replace
from ..text import tokenizer
from .connection.database import Connection
from .queries import QUERIES


def apply(connection: Connection, event: Add | Replace | Remove, vector: HalfVector | None) -> None:
    """Apply a change that the ledger does not have yet, in the caller's transaction."""
    match event:
        case Add():
            if event.metadata.get("origin") == "remember":
                _keep_entry(connection, event)
            elif not event.from_file:
                key = {"theme": event.theme, "home": event.home, "target": event.target, "content": event.content}
                for row in connection.execute(QUERIES["delete_entry_of_other_themes"], key).fetchall():
                    _tell_history(connection, row, event, "moved")
            _add_entry(connection, event.theme, event, event.at, vector, from_file=event.from_file)
        case Replace():
            found = _take_out(connection, event)
            theme, created_at = found or (event.theme, event.at)
            _add_entry(connection, theme, event, created_at, vector, from_file=False)
        case Remove():
            _take_out(connection, event)


def _keep_entry(connection: Connection, event: Add) -> None:
    connection.execute(
        QUERIES["detach_entry"],
        {
            "theme": event.theme, "target": event.target, "content": event.content, "at": event.at,
            "metadata": json.dumps(dict(event.metadata)),
        },
    )  # fmt: skip


def _add_entry(
    connection: Connection,
    theme: str,
    event: Add | Replace,
    created_at: datetime,
    vector: HalfVector | None,
    *,
    from_file: bool,
) -> None:
    connection.execute(
        QUERIES["add_entry"],
        {
            "theme": theme,
            "home": event.home,
            "target": event.target,
            "content": event.content,
            "embedding": vector,
            "words": tokenizer.document(event.content),
            "created_at": created_at,
            "at": event.at,
            "metadata": json.dumps(dict(event.metadata)),
            "from_file": from_file,
        },
    )


def _take_out(connection: Connection, event: Replace | Remove) -> tuple[str, datetime] | None:
    """Delete the one row that the event means; older adds of its home that are still to come meet a tombstone.

    Processes of a home store what they have in the order of each, but not in that of all.
    """
    previous = event.previous or _resolve(connection, event)
    if not previous:
        return None
    key = {
        "theme": event.theme, "home": event.home, "target": event.target, "content": previous, "at": event.at
    }  # fmt: skip
    if isinstance(event, Remove) or event.content != previous:
        connection.execute(QUERIES["add_tombstone"], key)
    if isinstance(event, Remove) and event.from_file:
        lines = connection.execute(QUERIES["delete_entry_of_home"], key).fetchall()
        for line in lines:
            _tell_history(connection, line, event, "removed")
        if lines:
            return None
    row = connection.execute(QUERIES["find_entry"], key).fetchone()
    if row is None:
        return None
    connection.execute(QUERIES["delete_entry"], {"theme": row["agent_identity"], "id": row["id"]})
    if isinstance(event, Replace):
        _tell_history(connection, row, event, "replaced", replaced_by=event.content)
    else:
        _tell_history(connection, row, event, "removed")
    return row["agent_identity"], row["created_at"]


def _tell_history(
    connection: Connection,
    row: Mapping[str, Any],
    event: Add | Replace | Remove,
    how: str,
    replaced_by: str | None = None,
) -> None:
    """Say how, when and from which session a row went, which a trigger has just put into the history."""
    connection.execute(
        QUERIES["complete_history"],
        {
            "theme": row["agent_identity"], "id": row["id"], "how": how, "session": event.session_id, "at": event.at,
            "replaced_by": replaced_by,
        },
    )  # fmt: skip


def _resolve(connection: Connection, event: Replace | Remove) -> str:
    """The whole text of the entry that held `old_text`, empty when none or several did.

    Only rows of the home count, and those that no home has claimed; the theme's own come first.
    """
    if not event.old_text:
        return ""
    surviving = list(event.surviving)
    if isinstance(event, Replace):
        surviving.append(event.content)
    rows = connection.execute(
        QUERIES["entries_containing"],
        {
            "theme": event.theme,
            "home": event.home,
            "target": event.target,
            "old_text": event.old_text,
            "surviving": surviving,
        },
    ).fetchall()
    nearest = [row for row in rows if row["agent_identity"] == event.theme] or rows
    return str(nearest[0]["content"]) if len({row["content"] for row in nearest}) == 1 else ""
