"""A recall: request → legs → fusion → hits, inside its budget, worse if it must and then saying why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import TypeAlias

from ..embedding.protocol import Embedder
from ..errors import PgvectorError, Refused, SchemaNotApplied, Unavailable
from ..model import WORDS_ONLY, Explanation, Hit, Recall, RecallRequest, Vector
from ..settings import Settings
from ..store import retrieval
from ..store.connection.database import Connection, Database
from ..store.connection.driver_errors import wrap_errors
from ..store.queries import Kind
from ..store.retrieval import Size, Where
from . import vector_search
from .cache import Remembered
from .fusion import Line, fuse
from .row_cache import RowCache
from .scan import Key, Scan, Version
from .selection import Best, select
from .terms import Terms
from .vector_search import SERIAL, Near

log = logging.getLogger("hermes.pgvector")

LEG_LIMIT = 100
QUERIES_REMEMBERED_MAX = SCOPES_REMEMBERED_MAX = 128
SIZE_AGE_S_MAX = 60.0
QUERY_CHARS_MAX = 4000
EMBED_SHARE = 0.6
SLICE_S_MIN = 0.05


class _NotWhole(Exception):
    """A scope that was counted as small could not be read whole: it has grown, or it takes more than its share."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question to some rows: its text, bounded, its vector if there is one, when the answer is due (monotonic)."""

    where: Where
    query: str
    vector: Vector | None
    deadline: float


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found in how many rows: by the near leg, and by both legs with the neighbours.

    `version` tells that of a row if it is known.
    """

    rows: int
    near: Near
    line: Line[Key]
    version: Callable[[Key], Version | None]


# What was found, the hits, and when the search was over (monotonic).
_Answer: TypeAlias = tuple[_Found, tuple[Hit, ...], float]


class Recaller:
    """Answers questions to the memory. Safe for any thread.

    `embedder` returns the one whose vectors fit the database, or the reason why there is none.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._remember()

    def turns(self, request: RecallRequest) -> Recall:
        """Past turns that answer the request. Never raises for a service that is down: the recall is degraded then."""
        return self._recall("turns", request)

    def entries(self, request: RecallRequest) -> Recall:
        """Memory entries that answer the request; as `turns`."""
        return self._recall("entries", request)

    def abandon(self) -> None:
        """Begin anew in a forked child: a lock may be held by a thread of the parent."""
        self._remember()

    def _remember(self) -> None:
        self._vectors = Remembered[str, Vector](QUERIES_REMEMBERED_MAX)
        self._terms = Terms()
        self._rows = RowCache()
        self._sizes = Remembered[Where, Size](SCOPES_REMEMBERED_MAX, SIZE_AGE_S_MAX)

    def _recall(self, kind: Kind, request: RecallRequest) -> Recall:
        started = time.monotonic()
        deadline = started + request.budget_s
        query = _bounded(request.query)
        vector, degraded = self._vector(query, request.budget_s * EMBED_SHARE)
        asked = _Asked(Where(kind, request.scope, request.target or ""), query, vector, deadline)
        embedded = time.monotonic()
        try:
            found, hits, searched = self._answer(asked, request)
        except (Unavailable, SchemaNotApplied, Refused) as error:
            return Recall((), (*degraded, str(error)))
        if found.near.lacking:
            degraded = (*degraded, found.near.lacking)
        elif vector is not None and found.rows and not found.near.found:
            degraded = (*degraded, "no row of this scope has a vector yet")
        explanation = Explanation(
            rows=found.rows,
            plan=found.near.plan,
            near=len(found.near.found),
            words=int(found.line.worths.any(axis=1).sum()),
            embed_ms=round(1000 * (embedded - started), 1),
            legs_ms=round(1000 * (searched - embedded), 1),
            hits_ms=round(1000 * (time.monotonic() - searched), 1),
        )
        return Recall(hits, degraded, explanation)

    def _answer(self, asked: _Asked, request: RecallRequest) -> _Answer:
        """The answer, from all rows when the scope is small; a second attempt when it was not small."""
        size = self._sizes.get(asked.where)
        try:
            return self._attempt(asked, request, size)
        except _NotWhole as error:
            log.debug("%s", error)
        if size is not None:
            self._sizes.forget(asked.where)
        return self._attempt(asked, request, None, whole=False)

    def _attempt(self, asked: _Asked, request: RecallRequest, size: Size | None, *, whole: bool = True) -> _Answer:
        """The answer from a scope whose size is known or counted; `whole` is whether a small one is read whole."""
        left_s = max(SLICE_S_MIN, asked.deadline - time.monotonic())
        with self._database.transaction(
            left_s, vector_search.share(asked.deadline), within_s=left_s, **SERIAL
        ) as connection:
            found = self._found(connection, asked, size or self._size(connection, asked.where), whole=whole)
            searched = time.monotonic()
            return found, self._hits(connection, request, asked.where.kind, found), searched

    def _vector(self, query: str, budget_s: float) -> tuple[Vector | None, tuple[str, ...]]:
        embedder = self._embedder()
        if isinstance(embedder, str):
            return None, (embedder,)
        vector = self._vectors.get(query)
        if vector is None:
            try:
                vector = embedder.embed_query(query, budget_s)
            except (PgvectorError, ValueError) as error:
                return None, (f"{WORDS_ONLY}: {error}",)
            self._vectors.put(query, vector)
        return vector, ()

    def _found(self, connection: Connection, asked: _Asked, size: Size, *, whole: bool) -> _Found:
        terms = self._terms.of(connection, asked.query)
        scan = self._scan(connection, asked, terms, size) if whole else None
        if scan is not None:
            size = replace(size, rows=len(scan.keys))
        near = self._near(connection, asked, size, scan)
        version = scan.version if scan is not None else _unknown
        # Neighbours of other times and sides are not among the rows of a scope that is narrowed to some.
        if scan is not None and (asked.where.kind == "entries" or not asked.where.scope.cuts_sessions):
            return _Found(size.rows, near, scan.line(near.found, LEG_LIMIT), version)
        words = scan.worded(LEG_LIMIT) if scan is not None else self._worded(connection, asked, terms, size)
        line = retrieval.relate(connection, asked.where.kind, asked.vector, near.found, words)
        return _Found(size.rows, near, line, version)

    def _worded(
        self, connection: Connection, asked: _Asked, terms: Mapping[str, str], size: Size
    ) -> dict[Key, dict[str, float]]:
        most = self._settings.word_candidates_max
        return retrieval.worded(connection, asked.where, terms, LEG_LIMIT, rows=size.rows, candidates=most)

    def _scan(self, connection: Connection, asked: _Asked, terms: Mapping[str, str], size: Size) -> Scan | None:
        """None for a scope that is too large to be read whole. Raises _NotWhole."""
        if not self._small(asked, size):
            return None
        try:
            with wrap_errors():
                scan = retrieval.scan(connection, asked.where, terms, asked.vector, self._scanned_rows_max(asked))
        except (Unavailable, SchemaNotApplied) as error:
            # A view tells no versions, nor does a table of which the role may read some columns; the legs need none.
            raise _NotWhole(str(error)) from error
        if scan is None:
            raise _NotWhole("the scope has grown since it was counted")
        return scan

    def _small(self, asked: _Asked, size: Size) -> bool:
        return size.rows <= self._scanned_rows_max(asked)

    def _scanned_rows_max(self, asked: _Asked) -> int:
        most = self._settings.word_candidates_max
        return most if asked.vector is None else min(most, self._settings.exact_rows_max)

    def _near(self, connection: Connection, asked: _Asked, size: Size, scan: Scan | None) -> Near:
        if asked.vector is None:
            return Near("words only", {})
        if scan is not None and not size.pieces:
            return Near(vector_search.EXACT, scan.near(LEG_LIMIT))
        return vector_search.near(
            connection, asked.where, asked.vector, LEG_LIMIT,
            size=size, exact_rows_max=self._settings.exact_rows_max, deadline=asked.deadline,
        )  # fmt: skip

    def _size(self, connection: Connection, where: Where) -> Size:
        """The size of the scope, counted up to just past the bounds of exact search, and remembered for a minute."""
        size = self._sizes.get(where)
        if size is None:
            bounds = self._settings.exact_rows_max, self._settings.word_candidates_max
            size = retrieval.count(connection, where, max(bounds) + 1)
            self._sizes.put(where, size)
        return size

    def _hits(self, connection: Connection, request: RecallRequest, kind: Kind, found: _Found) -> tuple[Hit, ...]:
        near = found.near.found.values()
        scores = fuse(found.line, span=(min(near), max(near)) if near else None)
        best = select(partial(self._rows.of, connection, kind, found.version), request, scores)
        context = request.context if kind == "turns" and best else 0
        beside = retrieval.around(connection, list(best), context) if context else {}
        places = {key: place for place, key in enumerate(found.line.keys)}
        chosen = [places[key] for key in best]
        whys = zip(found.line.similarities[chosen].tolist(), found.line.worths[chosen].tolist(), strict=True)
        return tuple(
            _told(one, similarity, zip(found.line.words, worths, strict=True), beside.get(key, ()))
            for (key, one), (similarity, worths) in zip(best.items(), whys, strict=True)
        )


def _unknown(key: Key) -> None:
    """The version of a row of which none was read."""


def _told(best: Best, similarity: float, worths: Iterable[tuple[str, float]], context: tuple[Hit, ...]) -> Hit:
    """The hit with why it was found."""
    words = sorted((-worth, word) for word, worth in worths if worth)
    row = best.row
    return Hit(
        id=row.id, theme=row.theme, content=row.content, at=row.at, role=row.role, session_id=row.session_id,
        target=row.target, metadata=row.metadata or {}, score=best.score, said=best.said, context=context,
        similarity=None if isnan(similarity) else similarity, words=-sum(worth for worth, _ in words),
        matched=tuple(word for _, word in words),
    )  # fmt: skip


def _bounded(query: str) -> str:
    """The beginning and the end of a long query, because that is where people put the question when they paste."""
    if len(query) <= QUERY_CHARS_MAX:
        return query
    half = QUERY_CHARS_MAX // 2
    return f"{query[: half - 1]}\n{query[-half:]}"
