"""The near leg of a recall: by the size of the scope it is decided which plan answers, and that plan is pinned.

A theme that is a small part of a graph index is found badly through it: the rows of others are nearer, and the search
gives up before it meets enough of ours. So small scopes are compared row by row. Large ones are taken out of the
nearest rows of all, which the graph finds best, else looked for alone; and when the graph finds fewer rows than there
are, all are compared after all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import LiteralString

from ..errors import Unavailable
from ..model import Vector
from ..store import retrieval
from ..store.connection.database import Connection, part
from ..store.retrieval import Size, Way, Where
from .scan import Key

log = logging.getLogger("hermes.pgvector")

EXACT, GRAPH, OWN, FALLBACK = "exact", "graph index", "theme's own index", "exact, after the graph index"
# Of the time left, for each plan tried: what it leaves is for the rows.
SHARE = 0.6
SLICE_S_MIN = 0.05
# Starting workers or compiling takes longer than a recall, and the workers of a server are few.
SERIAL: dict[str, LiteralString] = {"jit": "off", "max_parallel_workers_per_gather": "0"}
# The index that holds vectors without texts is read faster than the table, also where the planner doubts it.
COMPARED: dict[str, LiteralString] = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "random_page_cost": "1.1",
    **SERIAL,
}
# Enough for the graph index to give a leg's rows of one theme among many.
INDEXED: dict[str, LiteralString] = {
    "hnsw__ef_search": "700",
    "hnsw__iterative_scan": "relaxed_order",
    "hnsw__max_scan_tuples": "400000",
    "hnsw__scan_mem_multiplier": "8",
    "enable_sort": "off",
    **SERIAL,
}


@dataclass(frozen=True, slots=True)
class Near:
    """The rows that were found with their similarities, by which plan; `lacking` tells why some may be missing."""

    plan: str
    found: dict[Key, float]
    lacking: str = ""


def plan_of(size: Size, exact_rows_max: int) -> str:
    """The plan for a scope of this size."""
    if size.rows <= exact_rows_max:
        return EXACT
    return OWN if size.own_index else GRAPH


def near(
    connection: Connection,
    where: Where,
    vector: Vector,
    limit: int,
    *,
    size: Size,
    exact_rows_max: int,
    deadline: float,
) -> Near:
    """The `limit` rows nearest to the question, as far as there is time until `deadline` (monotonic)."""
    chosen = plan_of(size, exact_rows_max)
    wanted = min(limit, size.rows)
    result = Near(chosen, {})
    for plan, way in _tries(chosen):
        try:
            found = compare(connection, where, vector, limit, way=way, pieces=size.pieces, within_s=share(deadline))
            if way == "exact" or len(found) >= len(result.found):
                result = Near(plan, found)
        except Unavailable as error:
            log.debug("%s, %s: %s", plan, way, error)
            continue
        if way == "exact" or len(result.found) >= wanted:
            return result
    return Near(result.plan, result.found, (
        f"searching by meaning found {len(result.found)} of {wanted} rows in time: raise recall_budget_s"
        + ("" if chosen == EXACT else ", or exact_rows_max above the size of the theme")
    ))  # fmt: skip


def _tries(chosen: str) -> Sequence[tuple[str, Way]]:
    """What is tried until enough rows are found: the plan and its way."""
    tries: dict[str, Sequence[tuple[str, Way]]] = {
        EXACT: [(EXACT, "exact")],
        GRAPH: [(GRAPH, "seen"), (GRAPH, "indexed"), (FALLBACK, "exact")],
        OWN: [(OWN, "indexed"), (FALLBACK, "exact")],
    }
    return tries[chosen]


def compare(
    connection: Connection,
    where: Where,
    vector: Vector,
    limit: int,
    *,
    way: Way,
    within_s: float,
    pieces: bool = False,
) -> dict[Key, float]:
    """The nearest rows by comparing all, or by a graph index. Raises Unavailable after `within_s` seconds.

    The transaction of `connection` goes on in either case, with its own settings.
    """
    with part(connection, within_s, **(COMPARED if way == "exact" else INDEXED)):
        return retrieval.near(connection, where, vector, limit, way=way, pieces=pieces)


def share(deadline: float) -> float:
    """How many seconds one of several statements may take, so that what it leaves is enough for the others."""
    return max(SLICE_S_MIN, SHARE * (deadline - time.monotonic()))
