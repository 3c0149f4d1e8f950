"""A recall: the embedding of the question, both searches, fusion, and the hits, within a deadline.

A service that is down makes the answer worse, and the answer says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from math import isnan
from typing import Any

from cachetools import LRUCache, TTLCache

from ..embedding.protocol import Embedder
from ..errors import ModelChanged, PgvectorError, Refused, SchemaNotApplied, Unavailable
from ..hosts.environment import user_zone
from ..model import WORDS_ONLY, Explanation, Hit, Period, Recall, RecallRequest, Scope, Vector
from ..outbox.heartbeat import Recalls
from ..settings import Settings
from ..store import grants, retrieval
from ..store.connection.database import Connection, Database
from ..store.connection.driver_errors import wrap_errors
from ..store.connection.local_settings import SERIAL, part
from ..store.queries import WORDS_MAX, Kind
from ..store.retrieval import Key, RelatedRows, Row, ScannedRows, Size
from ..store.schema.verification import Origin
from ..text import tokenizer
from ..text.periods import period
from . import vector_search
from .deadline import EMBEDDING_SHARE, Deadline, ms_since
from .fusion import Candidates, Span, candidates_of, fuse, span_of
from .reranking import Recalling, RerankingRecaller
from .selection import select
from .servers import Servers
from .vector_search import Nearest
from .word_search import bm25

log = logging.getLogger("hermes.pgvector")

SEARCH_LIMIT = 100
CACHED_VECTORS_MAX = CACHED_SIZES_MAX = 128
SIZE_AGE_S_MAX = 60.0
# A search gets a time limit of its own when its share of the time left is below this share of the first search's.
LATE_SHARE = 0.8
QUERY_CHARS_MAX = 4000
HURRIED = f"{WORDS_ONLY}: all connections were in use for long; raise pool_max"


class _NotReadWhole(Exception):
    """A scope that was counted as small cannot be read whole: it has grown, or reading it takes too long."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A request about some kind of rows, with the words of its query, and its vector and its `model` if it has one.

    `period` is what the query says about time. `hurried` is whether others used the connections for long.
    """

    kind: Kind
    request: RecallRequest
    words: list[str]
    vector: Vector | None
    model: str
    deadline: Deadline
    period: Period | None = None
    hurried: bool = False

    @property
    def vectors(self) -> Origin | None:
        """Of what the vectors have to be that it is compared with."""
        return None if self.vector is None else Origin(self.model, len(self.vector))


class Recaller:
    """Answers questions to the memory. Safe for any thread.

    `embedder` returns the one whose vectors fit the database, or the reason why there is none.
    """

    def __init__(self, database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> None:
        self._database, self._embedder, self._settings = database, embedder, settings
        self._lock = threading.Lock()
        self._vectors: LRUCache[tuple[str, str], Vector] = LRUCache(CACHED_VECTORS_MAX)
        self._sizes: TTLCache[tuple[Kind, Scope], Size] = TTLCache(CACHED_SIZES_MAX, SIZE_AGE_S_MAX)
        self._servers = Servers(database, settings)

    def recalls(self) -> Recalls:
        """Who has answered, and whether a standby is read from."""
        return self._servers.recalls

    def empty_caches(self) -> None:
        """Forget the questions with their vectors, and the sizes of scopes."""
        with self._lock:
            self._vectors.clear()
            self._sizes.clear()

    def close(self) -> None:
        """Close the connections to a standby. The database and the embedder belong to others."""
        self._servers.close()

    def recall(self, kind: Kind, request: RecallRequest) -> Recall:
        """The rows of a kind that answer the request. A service that is down degrades the recall and never raises."""
        return self.recall_each((kind,), request)[0]

    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]:
        """As `recall`, for each of these kinds, in one transaction."""
        started = time.monotonic()
        deadline = Deadline(request.budget_s)
        query = tokenizer.shortened(request.query, QUERY_CHARS_MAX)
        vector, model, degraded = self._vector(query, EMBEDDING_SHARE * request.budget_s)
        embed_ms = ms_since(started)
        words = tokenizer.query(query, WORDS_MAX)
        # Without a zone the time is local and naive: days before a change of daylight saving time have another offset.
        named = period(query, datetime.now(user_zone()))
        questions = [_Question(kind, request, words, vector, model, deadline, named) for kind in kinds]
        found: list[Recall] = []
        try:
            try:
                degraded += self._servers.ask(partial(self._search, questions, found), deadline)
            except ModelChanged as error:
                degraded = (*degraded, f"{WORDS_ONLY}: {error}")
                questions = [replace(question, vector=None) for question in questions]
                degraded += self._servers.ask(partial(self._search, questions, found), deadline)
        except (Unavailable, SchemaNotApplied, Refused) as error:
            self._database.doubted = True
            found += [Recall((), (str(error),))] * (len(questions) - len(found))
        return [
            Recall(each.hits, (*degraded, *each.degraded), replace(each.explanation, embed_ms=embed_ms), named)
            for each in found
        ]

    def _vector(self, query: str, timeout_s: float) -> tuple[Vector | None, str, tuple[str, ...]]:
        """The vector of a question with its model, or None with the reason."""
        embedder = self._embedder()
        if isinstance(embedder, str):
            return None, "", (embedder,)
        model = embedder.model
        with self._lock:
            vector = self._vectors.get((model, query))
        if vector is None:
            try:
                vector = embedder.embed_query(query, timeout_s)
            except (PgvectorError, ValueError) as error:
                return None, "", (f"{WORDS_ONLY}: {error}",)
            with self._lock:
                self._vectors[model, query] = vector
        return vector, model, ()

    def _search(
        self, asked: Sequence[_Question], found: list[Recall], server: Database, deadline: Deadline, whole: bool = True
    ) -> None:
        """Append the answers that `found` lacks. With `whole`, a small scope is read whole if it can be."""
        search_s = deadline.search_s
        try:
            with self._transaction(server, deadline, asked[0]) as (connection, hurried):
                questions = [replace(question, deadline=deadline, hurried=hurried) for question in asked]
                for question in questions[len(found) :]:
                    # The limit of the transaction fits until much of the time is used.
                    late = deadline.search_s < LATE_SHARE * search_s
                    with part(connection, deadline.search_s) if late else nullcontext():
                        found.append(self._answer(connection, question, whole=whole))
        except _NotReadWhole as error:
            log.debug("%s", error)
            unread = asked[len(found)]
            with self._lock:
                self._sizes.pop((unread.kind, unread.request.scope), None)
            self._search(asked, found, server, deadline, whole=False)

    def _answer(self, connection: Connection, question: _Question, *, whole: bool) -> Recall:
        started = time.monotonic()
        rows, nearest, found = self._candidates(connection, question, whole=whole)
        legs_ms, searched = ms_since(started), time.monotonic()
        hits = _hits(connection, question, span_of([*nearest.found.values()], rows), found)
        explanation = Explanation(
            rows=rows,
            plan=nearest.plan,
            near=len(nearest.found),
            words=int(found.word_scores.any(axis=1).sum()),
            legs_ms=legs_ms,
            hits_ms=ms_since(searched),
        )
        missing = nearest.missing
        if not missing and question.vector is not None and rows and not nearest.found:
            missing = "no row of this scope has a vector yet"
        return Recall(hits, (missing,) if missing else (), explanation)

    @contextmanager
    def _transaction(
        self, server: Database, deadline: Deadline, question: _Question
    ) -> Iterator[tuple[Connection, bool]]:
        """A transaction that ends before the deadline, and whether it came late: they come in the order of arrival."""
        # Postgres sends a notice for each stop-word.
        settings = {"client_min_messages": "error", **SERIAL, **grants.narrowing(question.request.scope)}
        impatient_at = time.monotonic() + deadline.patience_s
        with server.line.admitted(deadline.turn_s):
            left_s, hurried = deadline.left_s, time.monotonic() > impatient_at
            with server.transaction(
                left_s, deadline.search_s, within_s=left_s, admitted=True, vectors=question.vectors, **settings
            ) as connection:
                yield connection, hurried

    def _candidates(
        self, connection: Connection, question: _Question, *, whole: bool
    ) -> tuple[int, Nearest, Candidates]:
        """The number of rows in scope, the result of the vector search, and the candidates of both searches."""
        kind, scope, vector, due = question.kind, question.request.scope, question.vector, question.deadline
        size = self._size(connection, kind, scope)
        scan = self._scan(connection, question, size) if whole else None
        if vector is not None and scan is not None:
            nearest = Nearest(vector_search.EXACT, vector_search.nearest_of(scan, SEARCH_LIMIT))
        elif vector is None or question.hurried:
            nearest = Nearest("words only", {}, "" if vector is None else HURRIED)
        else:
            most = self._settings.exact_rows_max
            nearest = vector_search.search(
                connection, kind, scope, vector, SEARCH_LIMIT, size=size, exact_rows_max=most, deadline=due
            )
        if size.cut:
            missing = f"words were looked for in the {retrieval.THEMES_MAX} largest themes only: name the themes"
            nearest = replace(nearest, missing=nearest.missing or missing)
        if scan is not None:
            matches = bm25(scan, SEARCH_LIMIT, total=len(scan.keys))
        else:
            most = self._settings.word_candidates_max
            few = retrieval.word_candidates(connection, kind, scope, question.words, rows=size.rows, candidates=most)
            matches = bm25(few, SEARCH_LIMIT, total=few.total, expected=few.expected)
        # A scope that is narrowed to times or sides does not have the neighbours of its rows.
        rows: ScannedRows | RelatedRows
        if scan is not None and (kind != "turns" or not scope.cuts_sessions):
            rows = scan
        else:
            keys = dict.fromkeys([*nearest.found, *matches.keys])
            rows = retrieval.related(connection, kind, vector, list(keys))
        count = size.rows if scan is None else len(scan.keys)
        return count, nearest, candidates_of(rows, nearest.found, matches)

    def _scan(self, connection: Connection, question: _Question, size: Size) -> ScannedRows | None:
        """All rows of a scope; None if it is too large. Raises _NotReadWhole."""
        most = self._settings.word_candidates_max
        if question.vector is not None:
            most = min(most, self._settings.exact_rows_max)
        if size.rows > most:
            return None
        kind, scope, words = question.kind, question.request.scope, question.words
        try:
            with wrap_errors():
                rows = retrieval.scan(connection, kind, scope, words, question.vector, most + 1)
        except Unavailable as error:
            raise _NotReadWhole(str(error)) from error
        if len(rows.keys) > most:
            raise _NotReadWhole("the scope has grown since it was counted")
        return rows

    def _size(self, connection: Connection, kind: Kind, scope: Scope) -> Size:
        """The size of a scope, cached."""
        with self._lock:
            size = self._sizes.get((kind, scope))
        if size is None:
            settings = self._settings
            size = vector_search.size_of(connection, kind, scope, settings.exact_rows_max, settings.word_candidates_max)
            with self._lock:
                self._sizes[kind, scope] = size
        return size


def build(database: Database, embedder: Callable[[], Embedder | str], settings: Settings) -> Recalling:
    """The recaller of these settings, with a re-ranker where they name one; see `Recaller` for the arguments."""
    plain = Recaller(database, embedder, settings)
    return RerankingRecaller(plain, settings) if settings.rerank_url else plain


def _hits(connection: Connection, question: _Question, span: Span | None, found: Candidates) -> tuple[Hit, ...]:
    """The best of the candidates as hits, with the turns around them if the request wants these."""
    kind, request = question.kind, question.request
    scores = fuse(found, span=span, period=question.period)
    fetch = partial(retrieval.fetch, connection, kind)
    near = zip(found.keys, found.similarities.tolist(), strict=True)
    cosines = {key: cosine for key, cosine in near if not isnan(cosine)}
    best = select(fetch, request, scores, found.before, cosines=cosines, grouped=kind != "facts")
    turns = request.context if kind == "turns" and best else 0
    around = retrieval.around(connection, [one.key for one in best], turns) if turns else {}
    places = {key: place for place, key in enumerate(found.keys)}

    def hit(key: Key, row: Row, receipt: Key | None = None, **more: Any) -> Hit:
        # A receipt is embedded together with the row that it answers.
        similarity = max((cosines[each] for each in (key, receipt) if each in cosines), default=None)
        held = found.word_scores[places[key]].tolist()
        words = sorted([(-score, word) for score, word in zip(held, found.words, strict=True) if score])
        return Hit(
            id=row.id, theme=row.theme, content=row.content, at=row.at.astimezone(UTC), target=row.target,
            role=row.role, session_id=row.session_id, metadata=row.metadata or {},
            similarity=similarity, words=-sum([score for score, _ in words]),
            matched=tuple([word for _, word in words]), context=around.get(key, ()),
            tags=tuple(row.tags or ()), expires_at=row.expires_at and row.expires_at.astimezone(UTC), **more,
        )  # fmt: skip

    # A row that was moved before others has the score of the best of them. What is not shown raises none.
    raised = [one.receipt if one.receipt and not one.withheld else one.key for one in best]
    own = [0.0 if one.pointer else max(scores[one.key], scores[key]) for one, key in zip(best, raised, strict=True)]
    lifted = list(accumulate(reversed(own), max))[::-1]
    made: list[Hit] = []
    for one, score in zip(best, lifted, strict=True):
        side = hit(*one.side, score=scores[one.side[0]]) if one.side else None
        newer = (one.newer.id, one.newer.at.astimezone(UTC)) if one.newer else None
        marks = {"said": one.said, "alike": one.alike, "withheld": one.withheld, "pointer": one.pointer}
        made.append(hit(one.key, one.row, one.receipt, score=score, side=side, newer=newer, **marks))
    return tuple(made)
