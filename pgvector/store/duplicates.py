"""Rows that may say the same: read in the order of their ids, with the nearest of each by vector; merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, LiteralString, NamedTuple, TypeAlias

from ..text.tags import TAGS_MAX
from . import entries
from .connection.database import Connection, tuples
from .connection.local_settings import SERIAL, part
from .entries import REPLACES_MAX
from .queries import QUERIES

Kind: TypeAlias = Literal["entries", "turns"]
Pair: TypeAlias = tuple[int, int]
# The nearest rows of a theme with more rows than this are looked for in the graph index.
EXACT_ROWS_MAX = 2000
NEAR_MAX = 16
# The graph index gives up after so many rows: a duplicate is among the nearest ones.
_GRAPH: dict[str, LiteralString] = {
    "hnsw__ef_search": "40",
    "hnsw__iterative_scan": "relaxed_order",
    "hnsw__max_scan_tuples": "2000",
    "enable_sort": "off",
    **SERIAL,
}
# The index that holds the vectors is read faster than the table.
_EXACT: dict[str, LiteralString] = {"enable_bitmapscan": "off", "enable_seqscan": "off", **SERIAL}


class Comparable(NamedTuple):
    """A row to be compared. `text` is all that was said, `ids` are the rows that go with it, itself among them."""

    id: int
    ids: Sequence[int]
    scope: str
    text: str
    fixed: bool
    at: datetime
    embedded: bool


class Compared(NamedTuple):
    """A row as an operator sees it. `part` is the target of an entry or the session of a turn."""

    id: int
    home: str
    source: str
    part: str
    content: str
    created_at: datetime
    updated_at: datetime


def read(connection: Connection, kind: Kind, theme: str, after: int, limit: int) -> list[Comparable]:
    """Up to `limit` rows of a theme with ids above `after`, in order: entries, or answers with their questions."""
    found = connection.execute(QUERIES[f"{kind}_to_compare"], {"theme": theme, "after": after, "limit": limit})
    if kind == "entries":
        return [
            Comparable(row["id"], (row["id"],), row["scope"], row["content"], row["fixed"], row["at"], row["embedded"])
            for row in found
        ]
    return [
        Comparable(
            row["id"], [number for number in (row["question"], row["id"]) if number is not None], "",
            f"{row['asked']}\n\0\n{row['content']}", fixed=False, at=row["at"], embedded=False,
        )
        for row in found
    ]  # fmt: skip


def near(
    connection: Connection, theme: str, ids: Sequence[int], similarity: float, *, rows: int, within_s: float
) -> dict[Pair, float]:
    """The pairs of these entries and of others of the theme with at least this similarity, the lower id first.

    `rows` is the size of the theme, `within_s` the time limit.
    """
    values = {"theme": theme, "ids": list(ids), "similarity": similarity, "near": NEAR_MAX}
    name, settings = ("exact", _EXACT) if rows <= EXACT_ROWS_MAX else ("graph", _GRAPH)
    with part(connection, within_s, **settings):
        found = tuples(connection, QUERIES[f"near_entries_{name}"], values)
    return {(min(one, other), max(one, other)): similar for one, other, similar in found}


def shown(connection: Connection, kind: Kind, theme: str, ids: Sequence[int]) -> dict[int, Compared]:
    """These rows of a theme by their ids; those that are gone are left out."""
    found = connection.execute(QUERIES[f"compared_{kind}"], {"theme": theme, "ids": list(ids)})
    return {row["id"]: Compared(**row) for row in found}


def merge(
    connection: Connection,
    theme: str,
    keep: int,
    ids: Sequence[int],
    *,
    alike: Callable[[str, str], bool],
    at: datetime,
) -> int:
    """Merge entries into the one that stays, in the caller's transaction; returns how many.

    The history keeps them. An entry that is gone, in use, in a file, or not alike any more is left as it is.
    """
    rows = {
        row["id"]: row for row in connection.execute(QUERIES["lock_entries"], {"theme": theme, "ids": [keep, *ids]})
    }
    kept = rows.pop(keep, None)
    if kept is None:
        return 0
    going = [row for row in rows.values() if not row["home"] and alike(kept["content"], row["content"])]
    for row in going:
        entries.delete(connection, theme, row["id"], session_id="", at=at, replaced_by=kept["content"], how="removed")
    if going:
        tags = dict.fromkeys(tag for row in (kept, *going) for tag in row["tags"] or ())
        merged = [row["id"] for row in going]
        values = {
            "theme": theme, "id": keep, "remembered": any(row["origin"] == "remember" for row in going),
            "newest": max(row["updated_at"] for row in going),
            "tags": sorted([*tags][:TAGS_MAX]), "replaces": [*merged, *(kept["replaces"] or ())][:REPLACES_MAX],
        }  # fmt: skip
        connection.execute(QUERIES["merge_entry"], values)
    return len(going)


def kept_turns(connection: Connection, theme: str, ids: Sequence[int]) -> set[int]:
    """Those of these turns that are there, which stay until the end of the caller's transaction."""
    return {row["id"] for row in connection.execute(QUERIES["kept_turns"], {"theme": theme, "ids": list(ids)})}
