"""Removals of entries: which row a change of a home is about, in whatever order the changes come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from psycopg.rows import DictRow

from ..model import Remove, Replace, now
from .connection import entry_homes
from .connection.database import Connection
from .connection.distributed import form_of, is_distributed, noted
from .queries import QUERIES


def remove(connection: Connection, event: Replace | Remove, values: Mapping[str, Any]) -> DictRow | None:
    """Delete the row of the old entry; returns its theme, id, creation time, tags, metadata and future expiry, or None.

    A tombstone keeps older adds of its home from storing it again: the processes of a home are not in step.
    """
    content = event.previous or _resolve(connection, event, values)
    if not content:
        return None
    values = {**values, "content": content}
    if isinstance(event, Remove) or event.content != content:
        connection.execute(QUERIES["add_tombstone"], values)
    gone_from_file = isinstance(event, Remove) and event.from_file
    if gone_from_file and delete_of_home(connection, "delete_entry_of_home", values):
        return None
    values["themes"] = entry_homes.themes(connection, event.home, event.target, [content], event.theme)
    return _delete_one(connection, values) or _take_back(connection, values)


def _delete_one(connection: Connection, values: Mapping[str, Any]) -> DictRow | None:
    """Delete the row with this text that is nearest to the theme of a change; returns what `remove` does."""
    find = QUERIES[form_of(connection, "find_entry")]
    while row := connection.execute(find, values).fetchone():
        if gone := delete_rows(connection, "delete_found_entry", {**values, "theme": row["theme"], "id": row["id"]}):
            entry_homes.forget(connection, [row["theme"]], [values["content"]], values["target"])
            expired = gone[0]["expires_at"] is not None and gone[0]["expires_at"] <= now()
            return {**gone[0], "expires_at": None} if expired else gone[0]
    return None


def _take_back(connection: Connection, values: Mapping[str, Any]) -> DictRow | None:
    """The row that a change which is stored late would have taken; None when no row is left for it.

    A removal at 2 is stored after one at 4, which took the row that was there at 2: the former gets that row, and the
    latter takes the next one. That one may be gone by a removal at 6, which then takes the next one, and so on.
    """
    last = connection.execute(QUERIES["last_removal"], values).fetchone()
    if last is None:
        return None
    # No index serves this query. It runs only for a removal that is stored late.
    taken = connection.execute(QUERIES["removed_later"], {**values, "until": last["at"]}).fetchall()
    chain = _later_changes(taken, values["at"])
    for change in chain:
        later = {name: change[name] for name in ("session_id", "at", "how", "replaced_by")}
        if _delete_one(connection, {**values, **later}):
            kept = ("theme", "id", "created_at", "tags", "metadata")
            return {**{name: chain[0][name] for name in kept}, "expires_at": None}
    return None


def _later_changes(taken: Sequence[DictRow], at: datetime) -> list[DictRow]:
    """The rows from the one that was there at a time: each was there when the change that took the one before came.

    Of several such rows, the one that was taken last. Each is taken later than the one before, so none comes twice.
    """
    chain: list[DictRow] = []
    while there := [row for row in taken if row["updated_at"] <= at < row["at"]]:
        chain.append(max(there, key=itemgetter("at")))
        at = chain[-1]["at"]
    return chain


def _resolve(connection: Connection, event: Replace | Remove, values: Mapping[str, Any]) -> str:
    """The whole text of the one entry that contains `old_text`; empty when none or several do.

    Only rows of the event's home count, and rows of no home. If rows of the event's theme are found, only these count.
    """
    if not event.old_text:
        return ""
    surviving = [*event.surviving, *([event.content] if isinstance(event, Replace) else [])]
    themes = entry_homes.themes(connection, event.home, event.target, None, event.theme)
    parameters = {**values, "surviving": surviving, "themes": themes}
    rows = connection.execute(QUERIES["entries_containing"], parameters).fetchall()
    nearest = [row for row in rows if row["theme"] == event.theme] or rows
    return str(nearest[0]["content"]) if len({row["content"] for row in nearest}) == 1 else ""


def delete_of_home(
    connection: Connection, statement: str, values: Mapping[str, Any], *, others: bool = False
) -> list[DictRow]:
    """As `delete_rows`, of an entry of a home in all of its themes, or in `others` than that of the event."""
    home, target, content = (values[name] for name in ("home", "target", "content"))
    themes = entry_homes.themes(connection, home, target, [content])
    if themes is not None:
        themes = [theme for theme in themes if theme != values["theme"] or not others]
    if themes == []:
        return []
    rows = delete_rows(connection, statement, {**values, "themes": themes})
    entry_homes.forget(connection, [row["theme"] for row in rows], [content], target)
    return rows


def delete_rows(connection: Connection, statement: str, values: Mapping[str, Any]) -> list[DictRow]:
    """Run a statement that deletes entries, and return what it tells of them.

    A trigger inserts them into the history, to which how, when and by which session they were deleted is added.
    """
    if is_distributed(connection):
        note = {name: values[name] for name in ("how", "session_id", "replaced_by")} | {"gone_at": f"{values['at']}"}
        with noted(connection, note):
            return connection.execute(QUERIES[statement], values).fetchall()
    rows = connection.execute(QUERIES[statement], values).fetchall()
    for row in rows:
        connection.execute(QUERIES["complete_history"], {**values, "theme": row["theme"], "id": row["id"]})
    return rows
