"""Turns and entries that are deleted by age, role or length: counted, and deleted batch by batch, the oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from .connection.database import Connection
from .connection.distributed import form_of
from .queries import QUERIES

Kind: TypeAlias = Literal["turns", "entries"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """Which rows may go: older than `before`, of a `role`, with more than `chars` characters, with one of the `ids`.

    None, "" and 0 match all. A role and ids match turns only.
    """

    before: datetime | None = None
    role: str = ""
    chars: int = 0
    ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Count:
    """What matches in a theme. `kept` are entries that stand in the file of a home, which stay."""

    theme: str
    turns: int
    entries: int
    kept: int
    bytes: int
    first: datetime | None
    latest: datetime | None


class Pruning:
    """Deletes the matching rows of one kind and theme, in the order of their times. Call `batch` until it returns 0.

    It keeps its place, so that each batch reads on where the last one ended.
    """

    def __init__(self, kind: Kind, theme: str, wanted: Prunable) -> None:
        self._kind = kind
        self._values = {**asdict(wanted), "theme": theme, "after": "-infinity", "after_id": -(1 << 63)}

    def batch(self, connection: Connection, rows: int) -> int:
        """Delete up to so many rows in one statement; returns how many."""
        found = connection.execute(QUERIES[f"prune_{self._kind}"], {**self._values, "limit": rows}).fetchone()
        assert found is not None
        if found["after"] is not None:
            self._values |= {"after": found["after"], "after_id": found["after_id"]}
        return int(found["rows"])


def count(
    connection: Connection, themes: Sequence[str], wanted: Prunable, *, turns: bool, entries: bool
) -> list[Count]:
    """What matches in each of these themes, of the kinds that are asked for; themes without a match are left out."""
    values = {**asdict(wanted), "themes": list(themes), "turns": turns, "entries": entries}
    return [Count(**row) for row in connection.execute(QUERIES["count_prunable"], values)]


def themes(connection: Connection) -> list[str]:
    """The themes that have turns, entries or facts, in alphabetical order."""
    return [row["theme"] for row in connection.execute(QUERIES[form_of(connection, "themes_with_rows")])]


def sizes(connection: Connection, themes: Sequence[str]) -> list[tuple[str, int, int]]:
    """Of each of these themes: its name, and the numbers of its entries and of its turns."""
    found = connection.execute(QUERIES[form_of(connection, "count_themes")], {"themes": list(themes)})
    return [(row["theme"], row["entries"], row["turns"]) for row in found]
