"""A sample of the rows that have vectors in both columns, and what the graph indexes find for a vector.

For an administrator's connection.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString, TypeAlias

from psycopg.rows import DictRow

from pgvector import HalfVector

from ..model import Vector
from .connection.database import half
from .connection.local_settings import part
from .passages import Passage
from .queries import KINDS, Kind, query
from .schema.preflight import Connection

STATEMENT_S = 60.0
# The theme and the id of a row.
Key: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A row, what is embedded for it, and its vectors in the second column: its own one, then those of its chunks.

    `old` is its own vector in the first column, None when it has none.
    """

    kind: Kind
    key: Key
    passage: Passage
    vectors: Sequence[Vector]
    old: Vector | None


def sample(connection: Connection, limit: int) -> list[Sampled]:
    """Up to `limit` rows with vectors in the second column, spread over all of them, of all kinds."""
    found: list[Sampled] = []
    for kind in KINDS:
        rows = connection.execute(query(f"sample_embedded_{kind}", second=True), {"limit": limit}).fetchall()
        found += [_sampled(connection, kind, row) for row in rows]
    # Some rows may be gone by now.
    return [each for each in found[:: max(1, -(-len(found) // limit))] if each.vectors]


def nearest(
    connection: Connection, kind: Kind, vector: Vector, limit: int, *, second: bool, pieces: bool = False,
    **local: LiteralString,
) -> list[tuple[Key, float]]:  # fmt: skip
    """The `limit` rows nearest to a vector by one of the columns, or by the vectors of chunks, with their distances.

    `local` are settings by which the server takes the graph index, as `part` takes them.
    """
    statement = query(f"graph_nearest_{'pieces_' if pieces else ''}{kind}", second=second)
    with connection.transaction(), part(connection, STATEMENT_S, **local):
        rows = connection.execute(statement, {"vector": half(vector), "limit": limit}).fetchall()
    return [((row["theme"], row["id"]), row["distance"]) for row in rows]


def count_equal(connection: Connection, kind: Kind, vector: Vector, limit: int) -> int:
    """How many rows and chunks have this very vector in the second column; of each, no more than `limit` are counted.

    Reads the whole tables when there are fewer.
    """
    statement = query(f"count_equal_vectors_{kind}", second=True)
    with connection.transaction(), part(connection, STATEMENT_S):
        found = connection.execute(statement, {"vector": half(vector), "limit": limit}).fetchone()
    return found["rows"] if found else 0


def is_there(connection: Connection, row: Sampled) -> bool:
    """Whether a row still has a vector in the second column."""
    return bool(_vectors(connection, row.kind, row.key, second=True))


def _sampled(connection: Connection, kind: Kind, row: DictRow) -> Sampled:
    key, passage = (row["theme"], row["id"]), Passage("", row["content"], row["answers"] or "")
    new, old = (_vectors(connection, kind, key, second=second) for second in (True, False))
    return Sampled(kind, key, passage, new, old[0] if old else None)


def _vectors(connection: Connection, kind: Kind, key: Key, *, second: bool) -> list[Vector]:
    parameters = {"themes": [key[0]], "ids": [key[1]], "theme": key[0]}
    found = connection.execute(query(f"coded_vectors_{kind}", second=second), parameters).fetchone()
    return [HalfVector.from_binary(b64decode(text)).to_list() for text in (found or {"vectors": ()})["vectors"]]
