"""Vector indexes (HNSW) of single themes: which are worth building, and building and dropping them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from psycopg import sql

from ..errors import DatabaseUnavailable
from .queries import KINDS, QUERIES, Kind, index_name
from .schema.preflight import Connection, set_timeouts, try_lock

Step: TypeAlias = Literal["keep", "build", "rebuild", "drop"]

# A theme with this share of all rows is searched as well by the index of the whole table.
SHARE_MAX = 0.5
# The key of the lock, an arbitrary constant.
ADVISORY_LOCK = 0x6865726D6574


@dataclass(frozen=True, slots=True)
class ThemeIndex:
    """An index and what to do with it. `theme` is empty when no theme belongs to the name of an existing index."""

    name: str
    step: Step
    kind: Kind
    theme: str
    rows: int
    bytes: int


def plan(connection: Connection, *, rows_min: int, indexes_max: int) -> list[ThemeIndex]:
    """The steps by which the largest themes of at least `rows_min` rows get an index, at most `indexes_max` in all."""
    sizes = {index_name(row["kind"], row["theme"]): row for row in connection.execute(QUERIES["theme_sizes"])}
    existing = {row["name"]: row for row in connection.execute(QUERIES["theme_indexes"])}
    eligible = [name for name, row in sizes.items() if rows_min <= row["rows"] < SHARE_MAX * row["total"]]
    wanted = eligible[:indexes_max]
    steps = []
    for name in dict.fromkeys([*wanted, *existing]):
        index, size = existing.get(name), sizes.get(name, {"theme": "", "rows": 0})
        step: Step = "drop"
        if name in wanted:
            step = "build" if index is None else "keep" if index["valid"] else "rebuild"
        kind = next(kind for kind, names in KINDS.items() if name.startswith(f"{names['table']}_"))
        steps.append(ThemeIndex(name, step, kind, size["theme"], size["rows"], index["bytes"] if index else 0))
    return steps


def lock(connection: Connection) -> None:
    """Take the lock of this job until the connection is closed. Raises DatabaseUnavailable when it is taken."""
    if not try_lock(connection, ADVISORY_LOCK):
        raise DatabaseUnavailable("another tune runs on this database; run this one again when that has finished")
    set_timeouts(connection)


def apply(connection: Connection, index: ThemeIndex) -> None:
    """Do the step of an index while others read and write; `plan` rebuilds an index whose build was interrupted."""
    name = sql.Identifier(index.name)
    if index.step in ("drop", "rebuild"):
        connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name))
    if index.step in ("build", "rebuild"):
        connection.execute(
            sql.SQL(
                "CREATE INDEX CONCURRENTLY IF NOT EXISTS {} ON {} USING hnsw (embedding halfvec_cosine_ops)"
                " WITH (m = 16, ef_construction = 64) WHERE agent_identity = {}"
            ).format(name, sql.Identifier(KINDS[index.kind]["table"]), sql.Literal(index.theme))
        )
