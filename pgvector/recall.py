"""A recall: request → legs → fusion → hits, inside its budget, worse if it must and then saying why."""

from __future__ import annotations

import logging
import re
import threading
import time
import unicodedata
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import LiteralString

from .errors import PgvectorError, Refused, SchemaNotApplied, Unavailable
from .fusion import Candidate, fuse
from .model import Explanation, Hit, Recall, RecallRequest, Vector
from .ports import Embedder
from .settings import Settings
from .store import legs
from .store.legs import Key, Kind, Where
from .store.postgres import Connection, Database

log = logging.getLogger("hermes.pgvector")

LEG_LIMIT = 100
QUERIES_CACHED_MAX = 128
SIZE_AGE_S_MAX = 60.0
QUERY_CHARS_MAX = 4000
EMBED_SHARE = 0.6
# Of the time left, for each try of the near leg: what it leaves is for the rows.
NEAR_SHARE = 0.6
SLICE_S_MIN = 0.05
FETCHED_MIN = 20
_WORDS = re.compile(r"\w+")
# Enough for the graph index to give LEG_LIMIT rows of one theme among many.
INDEXED: dict[str, LiteralString] = {
    "hnsw__ef_search": "400",
    "hnsw__iterative_scan": "relaxed_order",
    "hnsw__max_scan_tuples": "400000",
    "hnsw__scan_mem_multiplier": "8",
    "enable_sort": "off",
}


@dataclass(frozen=True, slots=True)
class _Found:
    """What the legs brought: similarities, and what words are worth, by row, out of how many rows, by which plan.

    `lacking` tells why the near leg may have missed rows; empty when it has not.
    """

    rows: int
    plan: str
    near: dict[Key, float]
    words: dict[Key, dict[str, float]]
    lacking: str = ""


class Recaller:
    """Answers questions to the memory. Safe for any thread.

    `embedder` returns the one whose vectors fit the database, or the reason why there is none.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._sizes: OrderedDict[Where, tuple[float, int]] = OrderedDict()

    def turns(self, request: RecallRequest) -> Recall:
        """Past turns that answer the request. Never raises for a service that is down: the recall is degraded then."""
        return self._recall("turns", request)

    def entries(self, request: RecallRequest) -> Recall:
        """Memory entries that answer the request; as `turns`."""
        return self._recall("entries", request)

    def abandon(self) -> None:
        """Begin anew in a forked child: the lock may be held by a thread of the parent."""
        self._lock = threading.Lock()
        self._vectors, self._sizes = OrderedDict(), OrderedDict()

    def _recall(self, kind: Kind, request: RecallRequest) -> Recall:
        started = time.monotonic()
        deadline = started + request.budget_s
        query = _bounded(request.query)
        vector, degraded = self._vector(query, request.budget_s * EMBED_SHARE)
        embedded = time.monotonic()
        where = Where(kind, request.scope, request.target or "")
        try:
            found = self._legs(where, query, vector, deadline)
            searched = time.monotonic()
            hits = self._hits(kind, request, vector, found, deadline)
        except (Unavailable, SchemaNotApplied, Refused) as error:
            return Recall((), (*degraded, str(error)))
        if found.lacking:
            degraded = (*degraded, found.lacking)
        elif vector is not None and found.rows and not found.near:
            degraded = (*degraded, "no row of this scope has a vector yet")
        explanation = Explanation(
            rows=found.rows,
            plan=found.plan,
            near=len(found.near),
            words=len(found.words),
            embed_ms=round(1000 * (embedded - started), 1),
            legs_ms=round(1000 * (searched - embedded), 1),
            hits_ms=round(1000 * (time.monotonic() - searched), 1),
        )
        return Recall(hits, degraded, explanation)

    def _vector(self, query: str, budget_s: float) -> tuple[Vector | None, tuple[str, ...]]:
        embedder = self._embedder()
        if isinstance(embedder, str):
            return None, (embedder,)
        with self._lock:
            if query in self._vectors:
                self._vectors.move_to_end(query)
                return self._vectors[query], ()
        try:
            vector = embedder.embed_query(query, budget_s)
        except (PgvectorError, ValueError) as error:
            return None, (f"by words only: {error}",)
        with self._lock:
            self._vectors[query] = vector
            if len(self._vectors) > QUERIES_CACHED_MAX:
                self._vectors.popitem(last=False)
        return vector, ()

    def _legs(self, where: Where, query: str, vector: Vector | None, deadline: float) -> _Found:
        with self._transaction(deadline) as connection:
            rows = self._size(connection, where)
            words = legs.worded(
                connection, where, query, LEG_LIMIT, rows=rows, candidates=self._settings.word_candidates_max
            )
            if vector is None:
                return _Found(rows, "words only", {}, words)
            if rows <= self._settings.exact_rows_max:
                return _Found(rows, "exact", legs.near(connection, where, vector, LEG_LIMIT, exact=True), words)
        return self._indexed(where, vector, deadline, _Found(rows, "words only", {}, words))

    def _indexed(self, where: Where, vector: Vector, deadline: float, found: _Found) -> _Found:
        """The near leg by the graph index and, when that finds too few, by comparing all rows, as far as time allows.

        The index finds too few when the rows of other themes are nearer: it gives up before it meets enough of ours.
        """
        wanted = min(LEG_LIMIT, found.rows)
        for plan, exact, local in (("graph index", False, INDEXED), ("exact, after the graph index", True, {})):
            try:
                with self._transaction(_part(deadline, NEAR_SHARE), **local) as connection:
                    near = legs.near(connection, where, vector, LEG_LIMIT, exact=exact)
            except Unavailable as error:
                log.debug("%s: %s", plan, error)
                continue
            found = replace(found, plan=plan, near=near)
            if exact or len(near) >= wanted:
                return found
        return replace(found, lacking=(
            f"searching by meaning found {len(found.near)} of {wanted} rows in time: raise recall_budget_s, or "
            "exact_rows_max above the size of the theme"
        ))  # fmt: skip

    def _transaction(self, deadline: float, **local: LiteralString) -> AbstractContextManager[Connection]:
        left_s = max(SLICE_S_MIN, deadline - time.monotonic())
        return self._database.transaction(left_s, left_s, within_s=left_s, **local)

    def _size(self, connection: Connection, where: Where) -> int:
        """Rows of the scope, counted up to just past the bounds of exact search, and remembered for a minute."""
        with self._lock:
            at, size = self._sizes.get(where, (0.0, -1))
        if size >= 0 and time.monotonic() - at < SIZE_AGE_S_MAX:
            return size
        size = legs.count(connection, where, max(self._settings.exact_rows_max, self._settings.word_candidates_max) + 1)
        with self._lock:
            self._sizes[where] = (time.monotonic(), size)
            if len(self._sizes) > QUERIES_CACHED_MAX:
                self._sizes.popitem(last=False)
        return size

    def _hits(
        self, kind: Kind, request: RecallRequest, vector: Vector | None, found: _Found, deadline: float
    ) -> tuple[Hit, ...]:
        keys = list(dict.fromkeys([*found.near, *found.words]))
        if not keys:
            return ()
        span = (min(found.near.values()), max(found.near.values())) if found.near else None
        with self._transaction(deadline) as connection:
            related = {
                relation.key: Candidate(
                    relation.key, relation.similarity, found.words.get(relation.key, {}), relation.previous
                )
                for relation in legs.relate(connection, kind, keys, vector)
            }
            scores = fuse(related.values(), span=span)
            best = _distinct(connection, kind, request, list(scores))
            beside = legs.around(connection, list(best), request.context) if request.context and kind == "turns" else {}
        return tuple(
            replace(
                hit,
                score=scores[key],
                similarity=related[key].similarity,
                words=sum(related[key].words.values()),
                matched=tuple(word for word, _ in Counter(related[key].words).most_common()),
                context=beside.get(key, ()),
            )
            for key, hit in best.items()
        )


def _distinct(connection: Connection, kind: Kind, request: RecallRequest, keys: Sequence[Key]) -> dict[Key, Hit]:
    """The first rows of those that the request asks for, each text once, with how often it stands among those read.

    Neighbours of what the legs found come from other times and sides, too.
    """
    best: dict[Key, Hit] = {}
    first: dict[str, Key] = {}
    step = max(FETCHED_MIN, 2 * request.limit)
    for start in range(0, len(keys), step):
        rows = legs.fetch(connection, kind, keys[start : start + step])
        for key in keys[start : start + step]:
            hit = rows.get(key)
            if hit is None or not request.scope.holds(hit):
                continue
            said = _said(hit.content)
            if said in first:
                best[first[said]] = replace(best[first[said]], said=best[first[said]].said + 1)
            elif len(best) < request.limit:
                best[key], first[said] = hit, key
        if len(best) >= request.limit:
            break
    return best


def _said(text: str) -> str:
    """What a text says, whatever its case, width, spaces and signs."""
    return " ".join(_WORDS.findall(unicodedata.normalize("NFKC", text).casefold())) or text


def _bounded(query: str) -> str:
    """The beginning and the end of a long query, because that is where people put the question when they paste."""
    if len(query) <= QUERY_CHARS_MAX:
        return query
    half = QUERY_CHARS_MAX // 2
    return f"{query[: half - 1]}\n{query[-half:]}"


def _part(deadline: float, share: float) -> float:
    """The moment at which this share of the time until the deadline is over."""
    now = time.monotonic()
    return now + share * max(0.0, deadline - now)
