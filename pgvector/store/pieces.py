"""Vectors of pieces, the parts of a text that each have a vector of their own beside that of the row."""

from __future__ import annotations

from collections.abc import Sequence

from pgvector import HalfVector

from ..model import Vector
from .connection.database import Connection, half
from .connection.distributed import by_theme
from .queries import QUERIES, Kind, query


def add(
    connection: Connection,
    kind: Kind,
    found: Sequence[tuple[tuple[str, int], Sequence[Vector | HalfVector]]],
    *,
    second: bool = False,
) -> None:
    """Store the vectors of the pieces of rows, each row given by its theme and id. Rows that are gone are left out.

    With `second` they belong to the second column of vectors.
    """
    pieces = [(*key, number, vector) for key, vectors in found for number, vector in enumerate(vectors)]
    if pieces:
        themes, ids, numbers, vectors = (list(column) for column in zip(*pieces, strict=True))
        columns = {"themes": themes, "ids": ids, "pieces": numbers, "embeddings": [*map(half, vectors)]}
        for parameters in by_theme(connection, columns):
            connection.execute(query(f"add_pieces_{kind}", second=second), parameters)


def undivided(connection: Connection, after: tuple[str, int], limit: int) -> list[tuple[tuple[str, int], str]]:
    """Up to `limit` messages of users without vectors of their sentences, from behind one: their keys and texts."""
    parameters = {"theme": after[0], "id": after[1], "limit": limit}
    rows = connection.execute(QUERIES["undivided_turns"], parameters)
    return [((row["theme"], row["id"]), row["content"]) for row in rows]
