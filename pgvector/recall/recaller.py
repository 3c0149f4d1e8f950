"""A recall: the embedding of the question, both searches, fusion, and the hits, within a deadline.

A service that is down makes the answer worse, and the answer says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import LiteralString

from cachetools import LRUCache, TTLCache

from ..embedding.protocol import Embedder
from ..errors import PgvectorError, Refused, SchemaNotApplied, Unavailable
from ..model import WORDS_ONLY, Explanation, Hit, Recall, RecallRequest, Vector
from ..settings import Settings
from ..store import retrieval
from ..store.connection.database import Connection, Database
from ..store.connection.driver_errors import wrap_errors
from ..store.queries import Kind
from ..store.retrieval import Key, Size, Where
from ..text import tokenizer
from . import vector_search, word_search
from .deadline import Deadline
from .fusion import Candidates, fuse
from .scan import Scan, with_neighbours
from .selection import Best, select
from .vector_search import SERIAL, Nearest

log = logging.getLogger("hermes.pgvector")

SEARCH_LIMIT = 100
CACHED_VECTORS_MAX = CACHED_SIZES_MAX = 128
SIZE_AGE_S_MAX = 60.0
QUERY_CHARS_MAX = 4000


class _NotReadWhole(Exception):
    """A scope that was counted as small cannot be read whole: it has grown, or reading it takes too long."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A question about some rows: its text, shortened, and its vector if there is one."""

    where: Where
    query: str
    vector: Vector | None
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class _Found:
    """The number of rows in scope, the result of the vector search, and the candidates of both searches."""

    rows: int
    nearest: Nearest
    candidates: Candidates[Key]


class Recaller:
    """Answers questions to the memory. Safe for any thread.

    `embedder` returns the one whose vectors fit the database, or the reason why there is none.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._lock = threading.Lock()
        self._vectors: LRUCache[str, Vector] = LRUCache(CACHED_VECTORS_MAX)
        self._sizes: TTLCache[Where, Size] = TTLCache(CACHED_SIZES_MAX, SIZE_AGE_S_MAX)

    def recall(self, kind: Kind, request: RecallRequest) -> Recall:
        """The turns or entries that answer the request. A service that is down degrades the recall and never raises."""
        started = time.monotonic()
        deadline = Deadline(request.budget_s)
        query = tokenizer.shortened(request.query, QUERY_CHARS_MAX)
        vector, degraded = self._vector(query, deadline)
        question = _Question(Where(kind, request.scope, request.target or ""), query, vector, deadline)
        embedded = time.monotonic()
        try:
            found, hits, searched = self._answer(question, request)
        except (Unavailable, SchemaNotApplied, Refused) as error:
            return Recall((), (*degraded, str(error)))
        if found.nearest.missing:
            degraded = (*degraded, found.nearest.missing)
        elif vector is not None and found.rows and not found.nearest.found:
            degraded = (*degraded, "no row of this scope has a vector yet")
        explanation = Explanation(
            rows=found.rows,
            plan=found.nearest.plan,
            near=len(found.nearest.found),
            words=int(found.candidates.word_scores.any(axis=1).sum()),
            embed_ms=round(1000 * (embedded - started), 1),
            legs_ms=round(1000 * (searched - embedded), 1),
            hits_ms=round(1000 * (time.monotonic() - searched), 1),
        )
        return Recall(hits, degraded, explanation)

    def _vector(self, query: str, deadline: Deadline) -> tuple[Vector | None, tuple[str, ...]]:
        """The vector of a question, or None with the reason."""
        embedder = self._embedder()
        if isinstance(embedder, str):
            return None, (embedder,)
        with self._lock:
            vector = self._vectors.get(query)
        if vector is None:
            try:
                vector = embedder.embed_query(query, deadline.embedding_s)
            except (PgvectorError, ValueError) as error:
                return None, (f"{WORDS_ONLY}: {error}",)
            with self._lock:
                self._vectors[query] = vector
        return vector, ()

    def _answer(self, question: _Question, request: RecallRequest) -> tuple[_Found, tuple[Hit, ...], float]:
        """What was found, the hits, and when the searches were over (monotonic)."""
        try:
            return self._search(question, request, whole=True)
        except _NotReadWhole as error:
            log.debug("%s", error)
        with self._lock:
            self._sizes.pop(question.where, None)
        return self._search(question, request, whole=False)

    def _search(
        self, question: _Question, request: RecallRequest, *, whole: bool
    ) -> tuple[_Found, tuple[Hit, ...], float]:
        """Search in one transaction; returns as `_answer` does.

        With `whole`, a small scope is read whole. Raises _NotReadWhole.
        """
        deadline = question.deadline
        left_s = deadline.left_s
        # Postgres sends a notice for each stop-word.
        settings: dict[str, LiteralString] = {"client_min_messages": "error", **SERIAL}
        with self._database.transaction(left_s, deadline.search_s, within_s=left_s, **settings) as connection:
            found = self._found(connection, question, whole=whole)
            searched = time.monotonic()
            return found, _hits(connection, request, question.where.kind, found), searched

    def _found(self, connection: Connection, question: _Question, *, whole: bool) -> _Found:
        where, vector = question.where, question.vector
        size = self._size(connection, where)
        words = word_search.words_of(question.query)
        scan = self._scan(connection, question, words, size) if whole else None
        if scan is not None:
            size = replace(size, rows=len(scan.rows.keys))
        if vector is None:
            nearest = Nearest("words only", {})
        elif scan is not None and not size.pieces:
            nearest = Nearest(vector_search.EXACT, scan.nearest(SEARCH_LIMIT))
        else:
            most = self._settings.exact_rows_max
            nearest = vector_search.search(
                connection, where, vector, SEARCH_LIMIT, size=size, exact_rows_max=most, deadline=question.deadline
            )
        # A scope that is narrowed to times or sides does not have the neighbours of its rows.
        if scan is not None and (where.kind == "entries" or not where.scope.cuts_sessions):
            return _Found(size.rows, nearest, scan.candidates(nearest.found, SEARCH_LIMIT))
        if scan is not None:
            matches = scan.word_matches(SEARCH_LIMIT).by_key(scan.rows.keys)
        else:
            most = self._settings.word_candidates_max
            matches = word_search.search(connection, where, words, SEARCH_LIMIT, rows=size.rows, candidates=most)
        keys = list(dict.fromkeys([*nearest.found, *matches]))
        related = retrieval.related(connection, where.kind, vector, keys)
        return _Found(size.rows, nearest, with_neighbours(related, nearest.found, matches))

    def _scan(self, connection: Connection, question: _Question, words: list[str], size: Size) -> Scan | None:
        """All rows of a scope; None if it is too large. Raises _NotReadWhole."""
        most = self._settings.word_candidates_max
        if question.vector is not None:
            most = min(most, self._settings.exact_rows_max)
        if size.rows > most:
            return None
        try:
            with wrap_errors():
                rows, words = retrieval.scan(connection, question.where, words, question.vector, most + 1)
        except Unavailable as error:
            raise _NotReadWhole(str(error)) from error
        if len(rows.keys) > most:
            raise _NotReadWhole("the scope has grown since it was counted")
        return Scan.of(rows, words)

    def _size(self, connection: Connection, where: Where) -> Size:
        """The size of a scope, counted up to just above the limits of exact search, and cached."""
        with self._lock:
            size = self._sizes.get(where)
        if size is None:
            most = max(self._settings.exact_rows_max, self._settings.word_candidates_max)
            size = retrieval.count(connection, where, most + 1)
            with self._lock:
                self._sizes[where] = size
        return size


def _hits(connection: Connection, request: RecallRequest, kind: Kind, found: _Found) -> tuple[Hit, ...]:
    """The best of the candidates as hits, with the turns around them if the request wants these."""
    candidates, cosines = found.candidates, found.nearest.found.values()
    scores = fuse(candidates, span=(min(cosines), max(cosines)) if cosines else None)
    best = select(partial(retrieval.fetch, connection, kind), request, scores)
    turns = request.context if kind == "turns" and best else 0
    around = retrieval.around(connection, list(best), turns) if turns else {}
    places = {key: place for place, key in enumerate(candidates.keys)}
    hits = []
    for key, one in best.items():
        similarity, word_scores = candidates.similarities[places[key]], candidates.word_scores[places[key]].tolist()
        words = zip(candidates.words, word_scores, strict=True)
        hits.append(_hit(one, float(similarity), words, around.get(key, ())))
    return tuple(hits)


def _hit(best: Best, similarity: float, word_scores: Iterable[tuple[str, float]], context: tuple[Hit, ...]) -> Hit:
    words = sorted((-score, word) for word, score in word_scores if score)
    row = best.row
    return Hit(
        id=row.id, theme=row.theme, content=row.content, at=row.at, role=row.role, session_id=row.session_id,
        target=row.target, metadata=row.metadata or {}, score=best.score, said=best.said, context=context,
        similarity=None if isnan(similarity) else similarity, words=-sum(score for score, _ in words),
        matched=tuple(word for _, word in words),
    )  # fmt: skip
