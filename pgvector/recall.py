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

from . import meaning
from .errors import PgvectorError, Refused, SchemaNotApplied, Unavailable
from .fusion import Candidate, fuse
from .meaning import Near
from .model import WORDS_ONLY, Explanation, Hit, Recall, RecallRequest, Vector
from .ports import Embedder
from .settings import Settings
from .store import legs
from .store.legs import Key, Kind, Size, Where
from .store.postgres import Connection, Database

log = logging.getLogger("hermes.pgvector")

LEG_LIMIT = 100
QUERIES_CACHED_MAX = 128
SIZE_AGE_S_MAX = 60.0
QUERY_CHARS_MAX = 4000
EMBED_SHARE = 0.6
SLICE_S_MIN = 0.05
FETCHED_MIN = 20
_WORDS = re.compile(r"\w+")
_ASCII_SIGNS = str.maketrans({sign: " " for sign in map(chr, range(128)) if not _WORDS.match(sign)})


@dataclass(frozen=True, slots=True)
class _Found:
    """What the legs brought, out of how many rows; `words` is what the words of a row are worth."""

    rows: int
    near: Near
    words: dict[Key, dict[str, float]]


class Recaller:
    """Answers questions to the memory. Safe for any thread.

    `embedder` returns the one whose vectors fit the database, or the reason why there is none.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._lock = threading.Lock()
        self._vectors: OrderedDict[str, Vector] = OrderedDict()
        self._sizes: OrderedDict[Where, tuple[float, Size | None]] = OrderedDict()

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
            with self._transaction(deadline) as connection:
                found = self._legs(connection, where, query, vector, deadline)
                searched = time.monotonic()
                hits = _hits(connection, kind, request, vector, found)
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
            return None, (f"{WORDS_ONLY}: {error}",)
        with self._lock:
            self._vectors[query] = vector
            if len(self._vectors) > QUERIES_CACHED_MAX:
                self._vectors.popitem(last=False)
        return vector, ()

    def _legs(self, connection: Connection, where: Where, query: str, vector: Vector | None, deadline: float) -> _Found:
        size = self._size(connection, where)
        words = legs.worded(
            connection, where, query, LEG_LIMIT, rows=size.rows, candidates=self._settings.word_candidates_max
        )
        if vector is None:
            return _Found(size.rows, Near("words only", {}), words)
        most = self._settings.exact_rows_max
        near = meaning.near(connection, where, vector, LEG_LIMIT, size=size, exact_rows_max=most, deadline=deadline)
        return _Found(size.rows, near, words)

    def _transaction(self, deadline: float) -> AbstractContextManager[Connection]:
        left_s = max(SLICE_S_MIN, deadline - time.monotonic())
        return self._database.transaction(left_s, left_s, within_s=left_s)

    def _size(self, connection: Connection, where: Where) -> Size:
        """The size of the scope, counted up to just past the bounds of exact search, and remembered for a minute."""
        with self._lock:
            at, size = self._sizes.get(where, (0.0, None))
        if size is not None and time.monotonic() - at < SIZE_AGE_S_MAX:
            return size
        size = legs.count(connection, where, max(self._settings.exact_rows_max, self._settings.word_candidates_max) + 1)
        with self._lock:
            self._sizes[where] = (time.monotonic(), size)
            if len(self._sizes) > QUERIES_CACHED_MAX:
                self._sizes.popitem(last=False)
        return size


def _hits(
    connection: Connection, kind: Kind, request: RecallRequest, vector: Vector | None, found: _Found
) -> tuple[Hit, ...]:
    near = found.near.found
    keys = list(dict.fromkeys([*near, *found.words]))
    if not keys:
        return ()
    span = (min(near.values()), max(near.values())) if near else None
    related = {
        relation.key: Candidate(
            relation.key,
            # A part of a long text may be nearer than the row, whose vector stands for its beginning.
            near.get(relation.key, relation.similarity),
            found.words.get(relation.key, {}),
            relation.previous,
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
    if text.isascii():
        words = text.casefold().translate(_ASCII_SIGNS).split()
    else:
        words = _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())
    return " ".join(words) or text


def _bounded(query: str) -> str:
    """The beginning and the end of a long query, because that is where people put the question when they paste."""
    if len(query) <= QUERY_CHARS_MAX:
        return query
    half = QUERY_CHARS_MAX // 2
    return f"{query[: half - 1]}\n{query[-half:]}"
