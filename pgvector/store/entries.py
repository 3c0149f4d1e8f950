"""Memory entries: listed, looked up, changed by events, deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, TypeAlias

from psycopg.rows import DictRow

from pgvector import HalfVector

from ..errors import BadEvent
from ..model import Add, Attributed, Metadata, Remove, Replace, Update
from ..text import tokenizer
from ..text.masks import masked
from ..text.times import NEVER
from . import removals
from .connection import entry_homes
from .connection.database import Connection
from .connection.distributed import form_of
from .queries import QUERIES

Change: TypeAlias = Add | Update | Replace | Remove
REPLACES_MAX, SAVES_MAX = 100, 20
# What the history says about the rows that an event deletes.
_HOW = {Add: "moved", Update: "replaced", Replace: "replaced", Remove: "removed"}


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of memory_entries. `home` is empty when the entry is in the file of no home, `tags` when it has none."""

    theme: str
    id: int
    home: str
    target: str
    content: str
    created_at: datetime
    updated_at: datetime
    metadata: Metadata
    tags: Sequence[str]
    expires_at: datetime | None


def newest(
    connection: Connection,
    theme: str,
    limit: int,
    *,
    target: str = "",
    before: int | None = None,
    tags: Sequence[str] = (),
) -> list[Entry]:
    """The `limit` entries with the highest ids, highest first; of one target, with ids below `before`, or with one of
    `tags` only."""
    parameters = {"theme": theme, "target": target, "before": before, "tags": list(tags) or None, "limit": limit}
    return [Entry(**row) for row in connection.execute(QUERIES["list_entries"], parameters)]


def count_by_target(connection: Connection, theme: str) -> Mapping[str, tuple[int, datetime]]:
    """The number of entries of each target that a theme has, and the time of the last change."""
    rows = connection.execute(QUERIES["count_by_target"], {"theme": theme})
    return {row["target"]: (row["entries"], row["newest"]) for row in rows}


def entry_with(connection: Connection, theme: str, target: str, content: str) -> Entry | None:
    """The entry of a theme with exactly this content, or None."""
    return next(iter(of_file(connection, theme, "", target, [content])), None)


def of_file(connection: Connection, theme: str, home: str, target: str, contents: Sequence[str]) -> list[Entry]:
    """The rows with the texts of a home's file: those of the home, in any theme, and those of a theme."""
    themes = entry_homes.themes(connection, home, target, contents, theme)
    parameters = {"theme": theme, "home": home, "target": target, "contents": list(contents), "themes": themes}
    return [Entry(**row) for row in connection.execute(QUERIES[form_of(connection, "entries_of_file")], parameters)]


def with_id(connection: Connection, theme: str, number: int) -> Entry | None:
    """The entry of a theme with this id, or else the one that has replaced it, whose id differs; None without one."""
    row = connection.execute(QUERIES["entry_with_id"], {"theme": theme, "id": number}).fetchone()
    return Entry(**row) if row else None


def themes_with_id(connection: Connection, number: int) -> list[str]:
    """The themes that have an entry with this id: one, unless rows were copied by hand."""
    return [row["theme"] for row in connection.execute(QUERIES["themes_with_id"], {"id": number})]


def apply(connection: Connection, event: Change, vector: HalfVector | None) -> None:
    """Apply a change that the ledger does not have yet, in the caller's transaction.

    Raises BadEvent for an update of an entry that is gone.
    """
    values = _values_of(event, vector)
    match event:
        case Update():
            if not _correct(connection, event, event.entry_id, values):
                number = event.entry_id
                raise BadEvent(f"theme {event.theme} has no entry {number} any more, so its new text is not stored")
        case Add(supersedes=number) if number and _correct(connection, event, number, values):
            pass
        case Add():
            if event.metadata.get("origin") == "remember":
                # An entry that the agent asks to remember is kept when its line is removed from the file.
                _detach(connection, values)
            elif not event.from_file:
                _move_to_theme(connection, values)
            _add(connection, values)
        case Replace() if event.previous != event.content and masked(event.previous) == masked(event.content):
            _change_masks(connection, event, values)
        case Replace():
            kept = removals.remove(connection, event, values) or {}
            metadata = _made(event, kept.get("metadata") or {}, changed=event.previous != event.content)
            new = {**values, **kept, "metadata": json.dumps(metadata)}
            # A session that began since the host changed the file has found the new entry in it.
            _move_to_theme(connection, new)
            _add(connection, new)
        case Remove():
            removals.remove(connection, event, values)


def attribute(connection: Connection, event: Attributed) -> None:
    """Note the tools by which entries were made."""
    tools = json.dumps(event.metadata.get("tools", []))
    values = {"theme": event.theme, "saves": list(event.saves), "tools": tools}
    connection.execute(QUERIES["attribute_entries"], values)


def _values_of(event: Change, vector: HalfVector | None) -> dict[str, Any]:
    """The named parameters of an event, for all statements: each takes those that it names."""
    expires, tags = getattr(event, "expires", ""), getattr(event, "tags", None)
    return {
        "from_file": False, "created_at": event.at, **asdict(event),
        "tags": None if tags is None else list(tags), "replaces": None,
        "metadata": json.dumps(dict(event.metadata)), "embedding": vector, "how": _HOW[type(event)],
        "expiry_given": bool(expires), "expires_at": None if expires in ("", NEVER) else expires,
        "replaced_by": event.content if isinstance(event, Replace) else None,
    }  # fmt: skip


def _detach(connection: Connection, values: Mapping[str, Any]) -> None:
    """Have the entry with this text, if there is one, stay when a file loses it; it gets the expiry and tags given."""
    connection.execute(QUERIES[form_of(connection, "detach_entry")], values)


def _move_to_theme(connection: Connection, values: Mapping[str, Any]) -> None:
    """Delete the row that a file gave to another theme of its home: a hook has told whose entry it is."""
    moved = {**values, "how": _HOW[Add], "replaced_by": None}
    removals.delete_of_home(connection, "delete_entry_of_other_themes", moved, others=True)


def _add(connection: Connection, values: Mapping[str, Any]) -> None:
    """Insert an entry, unless it is there or was removed later."""
    theme, home, target, content = (values[name] for name in ("theme", "home", "target", "content"))
    entry_homes.note(connection, theme, home, target, content)
    themes = entry_homes.themes(connection, home, target, [content], theme)
    connection.execute(QUERIES["add_entry"], {**values, "themes": themes, "words": tokenizer.document(content)})


def _change_masks(connection: Connection, event: Replace, values: Mapping[str, Any]) -> None:
    """Store an entry of a home with its secrets masked, or not masked any more, where it is stored.

    What somebody has removed from the database is not added again.
    """
    connection.execute(QUERIES["add_tombstone"], {**values, "content": event.previous})
    for row in of_file(connection, event.theme, event.home, event.target, [event.previous]):
        if event.home and row.home == event.home and row.updated_at <= event.at:
            new = event.content
            delete(connection, row.theme, row.id, session_id=event.session_id, at=event.at, replaced_by=new)
            kept = {"theme": row.theme, "created_at": row.created_at, "expires_at": row.expires_at}
            metadata = json.dumps(dict(row.metadata))
            _add(connection, {**values, **kept, "tags": list(row.tags), "metadata": metadata})


def _correct(connection: Connection, event: Add | Update, number: int, values: Mapping[str, Any]) -> bool:
    """Put a new text in the place of the entry with this id; False when there is none to be replaced by the event.

    The new row has an id of its own, so that a vector which is on its way for the old text never gets to it. Its
    `replaces` are the ids before it, so that a correction which is stored later finds it by any of them. When a later
    correction is stored already, that one stays: an addition is then stored beside it, and the text of an update goes
    into the history.
    """
    old = to_replace(connection, event.theme, number)
    if old is None:
        return False
    if old["id"] != number and old["updated_at"] > event.at:
        if isinstance(event, Update):
            late = {"id": number, "target": old["target"], "replaced_by": old["content"]}
            connection.execute(QUERIES["add_history"], {**values, **late})
        return isinstance(event, Update)
    if old["expires_at"] is not None and old["expires_at"] <= event.at:
        # Its row waits for the upkeep. The expiry would make the new text one that has expired, too.
        return False
    new = {**values, **_kept(event, old)}
    delete(connection, event.theme, old["id"], session_id=event.session_id, at=event.at, replaced_by=event.content)
    # Another entry may have this text already.
    _detach(connection, {**values, "target": new["target"]})
    _add(connection, new)
    return True


def to_replace(connection: Connection, theme: str, number: int) -> DictRow | None:
    """The row of a theme with this id, or else the one that has replaced it, locked; None when there is neither."""
    return connection.execute(QUERIES["entry_to_replace"], {"theme": theme, "id": number}).fetchone()


def successor_ids(old: DictRow) -> list[int]:
    """The ids that the row in the place of `old` replaces, the last one first."""
    return [old["id"], *(old["replaces"] or ())][:REPLACES_MAX]


def _kept(event: Add | Update, old: DictRow) -> dict[str, Any]:
    """The parameters of a new row that depend on the one before it."""
    kept: dict[str, Any] = {"replaces": successor_ids(old), "home": ""}
    metadata = _made(event, old["metadata"], changed=old["content"] != event.content)
    if isinstance(event, Update):
        kept |= {"target": old["target"], "created_at": old["created_at"]}
    else:
        kept["target"] = event.target
    kept["metadata"] = json.dumps(metadata)
    if event.tags is None:
        kept["tags"] = old["tags"]
    if not event.expires:
        kept["expires_at"] = old["expires_at"]
    return kept


def _made(event: Add | Update | Replace, old: Metadata, *, changed: bool) -> dict[str, Any]:
    """The metadata of an entry that takes the place of one with the metadata `old`; an update keeps these.

    What is left of the old text is of its saves and tools. A save of the same text adds none, so that nobody can have
    an entry marked by saving it again.
    """
    metadata = {**event.metadata, **old, "origin": "remember"} if isinstance(event, Update) else dict(event.metadata)
    saves = [*(old.get("saves") or ()), *((event.metadata.get("saves") or ()) if changed else ())]
    metadata |= {"saves": saves[-SAVES_MAX:], "tools": old.get("tools")}
    return {name: value for name, value in metadata.items() if value or name not in ("saves", "tools")}


def delete(
    connection: Connection,
    theme: str,
    number: int,
    *,
    session_id: str,
    at: datetime,
    replaced_by: str | None = None,
    how: str = "",
) -> Entry | None:
    """Delete an entry in the caller's transaction and return it; None when the theme has no such id.

    The history keeps it, with the session, the time, the new text and `how` that are given.
    """
    how = how or ("removed" if replaced_by is None else "replaced")
    values = {"theme": theme, "id": number, "session_id": session_id, "at": at, "how": how, "replaced_by": replaced_by}
    rows = removals.delete_rows(connection, "delete_entry", values)
    if not rows:
        return None
    entry_homes.forget(connection, [theme], [rows[0]["content"]], rows[0]["target"])
    return Entry(**rows[0])


def forget_trial(connection: Connection, theme: str, content: str) -> None:
    """Delete the removed entry that tried out the memory from the history and from the tombstones."""
    for statement in ("forget_trial", "erase_tombstone"):
        connection.execute(QUERIES[statement], {"theme": theme, "content": content})
