"""Themes that have another name: events of the old name are stored under the new one, and the rows are moved.

The transaction that stores events finds the name as it finds the person of an account; see `person_links`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from . import moves, person_links
from .connection.database import Connection
from .connection.distributed import form_of
from .queries import QUERIES

RENAMES_MAX = 1000


@dataclass(frozen=True, slots=True)
class Rename:
    """The old and the new name of a theme, and whether rows are still stored under the old one."""

    old: str
    new: str
    renamed_at: datetime
    unmoved: bool


def rename(connection: Connection, old: str, new: str) -> int:
    """Have `old` be an old name of `new`, neither of which is an account or a person; see `person_links.join`."""
    return person_links.join(connection, old, new, (QUERIES["add_rename"], {"old": old, "new": new}))


def take(connection: Connection, old: str, new: str) -> bool | None:
    """Rename as another database did, in the caller's transaction; returns whether it is new here.

    None when `old` is a theme of its own here: it has rows, belongs to a person, is one, or has another new name.
    """
    connection.execute(QUERIES["lock_links"])
    new = next((known.new for known in listed(connection, new) if known.old == new), new)
    for known in listed(connection, old):
        if known.old == old:
            return False if known.new == new else None
    linked = person_links.of_themes(connection, [old]) or person_links.listed(connection, 1, old)
    if old == new or linked or person_links.in_use(connection, old):
        return None
    rename(connection, old, new)
    return True


def move(connection: Connection, old: str, new: str, rows: int) -> int:
    """Move up to so many rows of each table; returns how many. Call it in transactions of its own until it is 0.

    It is 0, too, once `old` is no old name of `new` any more. No rename changes until the end of the transaction.
    """
    connection.execute(QUERIES["share_links"])
    if not any(known.old == old and known.new == new for known in listed(connection, old)):
        return 0
    moved = moves.move(connection, old, new, limit=rows)
    if not moved:
        connection.execute(QUERIES["forget_words"], {"theme": old})
    return moved


def release(connection: Connection, old: str) -> str | None:
    """Let an old name be a theme of its own again; returns the name that its events went to, None for no old name."""
    connection.execute(QUERIES["lock_links"])
    row = connection.execute(QUERIES["delete_rename"], {"old": old}).fetchone()
    if row is None:
        return None
    moves.copy_erasures(connection, row["theme"], old)
    return str(row["theme"])


def listed(connection: Connection, theme: str = "", limit: int = RENAMES_MAX) -> list[Rename]:
    """Up to `limit` renames, those of a theme if it is named."""
    rows = connection.execute(QUERIES[form_of(connection, "list_renames")], {"theme": theme, "limit": limit})
    return [Rename(**row) for row in rows]


def move_unmoved(connection: Connection, rows: int) -> int:
    """Move some rows that an interrupted command or a process of an earlier release left under old names.

    Returns how many.
    """
    if not moves.may_move(connection):
        return 0
    return sum(move(connection, each.old, each.new, rows) for each in listed(connection) if each.unmoved)
