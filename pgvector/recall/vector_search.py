"""Vector search: the size of a scope decides the plan, and settings of the transaction pin it.

A graph index finds few rows of a theme that is a small part of it: rows of other themes are nearer, and the search ends
before it meets enough of ours. So small scopes are compared row by row. In a large one, the rows of the scope are taken
from the nearest of the whole table, which the graph index finds best. If these are too few, the graph index looks for
rows of the scope alone, and then all rows are compared.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import LiteralString

from ..errors import Unavailable
from ..model import Scope, Vector
from ..store import grants, retrieval
from ..store.connection.database import Connection
from ..store.connection.local_settings import SERIAL, part
from ..store.queries import Kind
from ..store.retrieval import Key, ScannedRows, Size, Way
from .deadline import Deadline

log = logging.getLogger("hermes.pgvector")

EXACT, GRAPH, OWN, FALLBACK = "exact", "graph index", "theme's own index", "exact, after the graph index"
# The index that holds vectors without texts is read faster than the table, also where the planner doubts it.
EXACT_SETTINGS: dict[str, LiteralString] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "random_page_cost": "1.1",
    **SERIAL,
}
# Enough for the graph index to find a hundred rows of one theme among many.
GRAPH_SETTINGS: dict[str, LiteralString] = {
    "hnsw__ef_search": "700",
    "hnsw__iterative_scan": "relaxed_order",
    "hnsw__max_scan_tuples": "400000",
    "hnsw__scan_mem_multiplier": "8",
    "enable_sort": "off",
    **SERIAL,
}
# Up to so many rows of a table `exact_rows_max` holds as it is; measured, see docs/scale.md.
TABLE_ROWS = 500_000
# By plan: what to try in turn, each with its way, until enough rows are found.
_ATTEMPTS: dict[str, Sequence[tuple[str, Way]]] = {
    EXACT: [(EXACT, "exact")],
    GRAPH: [(GRAPH, "of_all"), (GRAPH, "of_scope"), (FALLBACK, "exact")],
    OWN: [(OWN, "of_scope"), (FALLBACK, "exact")],
}


@dataclass(frozen=True, slots=True)
class Nearest:
    """The rows that were found with their cosines, and by which plan; `missing` says why rows may be missing, or ""."""

    plan: str
    found: dict[Key, float]
    missing: str = ""


def exact_limit(exact_rows_max: int, table_rows: int) -> int:
    """The most rows of a scope that are compared in less time than the graph of a table of this size takes.

    To compare takes time in proportion to the rows of the scope. To find some in the graph takes time in inverse
    proportion to their share of the table, so that the times are equal at the root of the product.
    """
    return int(exact_rows_max * max(1.0, math.sqrt(table_rows / TABLE_ROWS)))


def size_of(connection: Connection, kind: Kind, scope: Scope, exact_rows_max: int, word_candidates_max: int) -> Size:
    """The size of a scope, counted up to just above what is read whole and what is compared row by row."""
    most = max(exact_rows_max, word_candidates_max)
    size = retrieval.count(connection, kind, scope, most + 1)
    if size.rows <= exact_rows_max or size.own_index:
        return size
    size = replace(size, table_rows=retrieval.table_rows(connection, kind))
    limit = exact_limit(exact_rows_max, size.table_rows)
    if limit <= most or size.rows <= most:
        return size
    return replace(size, rows=retrieval.count(connection, kind, scope, limit + 1).rows)


def plan_of(size: Size, exact_rows_max: int) -> str:
    """The plan for a scope of this size."""
    if size.own_index and size.rows > exact_rows_max:
        return OWN
    return EXACT if size.rows <= exact_limit(exact_rows_max, size.table_rows) else GRAPH


def nearest_of(rows: ScannedRows, limit: int) -> dict[Key, float]:
    """The `limit` rows nearest to the question of a scope that was read whole, with their cosines, nearest first."""
    import numpy as np

    best = np.lexsort((rows.ids, -rows.cosines))[: min(limit, np.count_nonzero(~np.isnan(rows.cosines)))]
    keys = map(rows.keys.__getitem__, best.tolist())
    return dict(zip(keys, rows.cosines[best].tolist(), strict=True))


def search(
    connection: Connection,
    kind: Kind,
    scope: Scope,
    vector: Vector,
    limit: int,
    *,
    size: Size,
    exact_rows_max: int,
    deadline: Deadline,
) -> Nearest:
    """The `limit` rows nearest to the question, or those found until the deadline.

    Afterwards the transaction of `connection` can go on with its own settings.
    """
    chosen = plan_of(size, exact_rows_max)
    wanted = min(limit, size.rows)
    result = Nearest(chosen, {})
    for plan, way in _ATTEMPTS[chosen]:
        settings: dict[str, str] = {**(EXACT_SETTINGS if way == "exact" else GRAPH_SETTINGS)}
        if way == "of_all":
            settings |= grants.narrowing(scope, others=True)
        try:
            with part(connection, deadline.search_s, **settings):
                found = retrieval.nearest(connection, kind, scope, vector, limit, way=way, pieces=size.pieces)
        except Unavailable as error:
            log.debug("%s, %s: %s", plan, way, error)
            continue
        if way == "exact" or len(found) >= len(result.found):
            result = Nearest(plan, found)
        if way == "exact" or len(found) >= wanted:
            return result
    return Nearest(result.plan, result.found, (
        f"vector search found {len(result.found)} of {wanted} rows in time: raise recall_budget_s"
        + ("" if chosen == EXACT else ", or exact_rows_max above the size of the theme")
    ))  # fmt: skip
