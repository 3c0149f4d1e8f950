"""Graph indexes of single themes: which are earned, which are there, building and dropping them as an administrator."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, TypeAlias

from psycopg import sql
from psycopg.rows import DictRow, dict_row

from ..errors import DatabaseUnavailable
from .queries import KINDS, QUERIES, Kind
from .schema.preflight import Connection, fetch

Step: TypeAlias = Literal["keep", "build", "rebuild", "drop"]

# From this share of all rows on, the graph index of all is as good.
SHARE_MAX = 0.5
LOCK_TIMEOUT_S = 60
# Any constant does: it is the name of the lock that two of these jobs contend for.
ADVISORY_LOCK = 0x6865726D6574


@dataclass(frozen=True, slots=True)
class ThemeIndex:
    """An index that is earned, or there, and what is to be done. `theme` is empty when the name's theme is unknown."""

    name: str
    step: Step
    kind: Kind
    theme: str = ""
    rows: int = 0
    bytes: int = 0


def index_name(kind: Kind, theme: str) -> str:
    """The name of the graph index that a theme may have of its own."""
    return f"{KINDS[kind]['table']}_meaning_{hashlib.sha256(theme.encode()).hexdigest()[:16]}"


def plan(connection: Connection, *, rows_min: int, indexes_max: int) -> list[ThemeIndex]:
    """What is to be done so that the largest themes of `rows_min` rows and more have an index, `indexes_max` in all."""
    with connection.cursor(row_factory=dict_row) as cursor:
        sizes = cursor.execute(QUERIES["theme_sizes"]).fetchall()
        there = {row["name"]: row for row in cursor.execute(QUERIES["theme_indexes"])}
    earned = [row for row in sizes if row["rows"] >= rows_min and row["rows"] < SHARE_MAX * row["total"]]
    wanted = {index_name(row["kind"], row["theme"]): row for row in earned[:indexes_max]}
    known = {index_name(row["kind"], row["theme"]): row for row in sizes}
    return [
        _step(name, wanted.get(name), there.get(name), known.get(name)) for name in dict.fromkeys([*wanted, *there])
    ]


def _step(name: str, wanted: DictRow | None, there: DictRow | None, known: DictRow | None) -> ThemeIndex:
    step: Step = "drop"
    if wanted:
        step = "build" if not there else "keep" if there["valid"] else "rebuild"
    kind: Kind = "turns" if name.startswith(KINDS["turns"]["table"]) else "entries"
    size = there["bytes"] if there else 0
    return ThemeIndex(name, step, kind, known["theme"] if known else "", known["rows"] if known else 0, size)


def lock(connection: Connection) -> None:
    """Be the only one at it, until the connection is closed. Raises DatabaseUnavailable when somebody else is."""
    # Not waited for: what waits inside of a statement is itself waited for by an index that is built concurrently.
    if not fetch(connection, "SELECT pg_try_advisory_lock(%s)", [ADVISORY_LOCK])[0]:
        raise DatabaseUnavailable("another tune is at work on this database; run it again when that one has finished")
    fetch(connection, "SELECT set_config('lock_timeout', %s, false)", [f"{LOCK_TIMEOUT_S}s"])
    fetch(connection, "SELECT set_config('statement_timeout', '0', false)")


def take(connection: Connection, index: ThemeIndex) -> None:
    """Do the step of an index, while others read and write. An index left unfinished is invalid, and harmless."""
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
