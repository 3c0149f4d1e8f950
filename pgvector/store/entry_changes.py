"""Applies changes of memory entries to their rows and to the history."""

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
                # An entry that the agent asks to remember is kept when its line is removed from the file.
                parameters = {
                    "theme": event.theme, "target": event.target, "content": event.content, "at": event.at,
                    "metadata": json.dumps(dict(event.metadata)),
                }  # fmt: skip
                connection.execute(QUERIES["detach_entry"], parameters)
            elif not event.from_file:
                key = {"theme": event.theme, "home": event.home, "target": event.target, "content": event.content}
                for row in connection.execute(QUERIES["delete_entry_of_other_themes"], key).fetchall():
                    _complete_history(connection, row, event, "moved")
            _add_entry(connection, event.theme, event, event.at, vector)
        case Replace():
            found = _remove_entry(connection, event)
            theme, created_at = found or (event.theme, event.at)
            _add_entry(connection, theme, event, created_at, vector)
        case Remove():
            _remove_entry(connection, event)


def _add_entry(
    connection: Connection, theme: str, event: Add | Replace, created_at: datetime, vector: HalfVector | None
) -> None:
    parameters = {
        "theme": theme, "home": event.home, "target": event.target, "content": event.content, "embedding": vector,
        "words": tokenizer.document(event.content), "created_at": created_at, "at": event.at,
        "metadata": json.dumps(dict(event.metadata)), "from_file": isinstance(event, Add) and event.from_file,
    }  # fmt: skip
    connection.execute(QUERIES["add_entry"], parameters)


def _remove_entry(connection: Connection, event: Replace | Remove) -> tuple[str, datetime] | None:
    """Delete the row of the old entry; returns its theme and creation time, or None when there is none.

    A tombstone keeps older adds of its home from storing it again: the processes of a home are not in step.
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
            _complete_history(connection, line, event, "removed")
        if lines:
            return None
    row = connection.execute(QUERIES["find_entry"], key).fetchone()
    if row is None:
        return None
    connection.execute(QUERIES["delete_entry"], {"theme": row["agent_identity"], "id": row["id"]})
    _complete_history(connection, row, event, "replaced" if isinstance(event, Replace) else "removed")
    return row["agent_identity"], row["created_at"]


def _complete_history(connection: Connection, row: Mapping[str, Any], event: Add | Replace | Remove, how: str) -> None:
    """Add how, when and from which session a row was deleted to the history row that a trigger has just inserted."""
    parameters = {
        "theme": row["agent_identity"], "id": row["id"], "how": how, "session": event.session_id, "at": event.at,
        "replaced_by": event.content if isinstance(event, Replace) else None,
    }  # fmt: skip
    connection.execute(QUERIES["complete_history"], parameters)


def _resolve(connection: Connection, event: Replace | Remove) -> str:
    """The whole text of the one entry that contains `old_text`; empty when none or several do.

    Only rows of the event's home count, and rows of no home. If rows of the event's theme are found, only these count.
    """
    if not event.old_text:
        return ""
    surviving = list(event.surviving)
    if isinstance(event, Replace):
        surviving.append(event.content)
    parameters = {
        "theme": event.theme, "home": event.home, "target": event.target, "old_text": event.old_text,
        "surviving": surviving,
    }  # fmt: skip
    rows = connection.execute(QUERIES["entries_containing"], parameters).fetchall()
    nearest = [row for row in rows if row["agent_identity"] == event.theme] or rows
    return str(nearest[0]["content"]) if len({row["content"] for row in nearest}) == 1 else ""
