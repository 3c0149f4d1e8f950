"""Re-ranking: a model at an endpoint orders the first hits of a recall anew, within the recall's deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from ..embedding.breaker import CircuitBreaker
from ..embedding.factory import build_reranker
from ..errors import PgvectorError
from ..model import Hit, Recall, RecallRequest
from ..settings import Settings
from ..store.queries import Kind
from .deadline import Deadline

if TYPE_CHECKING:
    from ..embedding.reranker import Reranker


class Recalling(Protocol):
    """What answers recalls; see `Recaller`."""

    def recall(self, kind: Kind, request: RecallRequest) -> Recall: ...
    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]: ...
    def empty_caches(self) -> None: ...
    def close(self) -> None: ...


class RerankingRecaller:
    """A recaller whose first hits a re-ranker orders. Safe for any thread.

    Of a request, `rerank_hits_max` hits are re-ranked, or as many as it asks for. When the re-ranker is late or down,
    the hits keep their order, and the answer says so. No connection to the database is held meanwhile.
    """

    def __init__(self, recaller: Recalling, settings: Settings) -> None:
        self._recaller, self._settings = recaller, settings
        self._lock = threading.Lock()
        self._made: Reranker | None = None
        self._breaker = CircuitBreaker()

    def recall(self, kind: Kind, request: RecallRequest) -> Recall:
        """As `Recaller.recall`."""
        return self.recall_each((kind,), request)[0]

    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]:
        """As `Recaller.recall_each`. The kinds are re-ranked together, so that their scores can be compared."""
        deadline = Deadline(request.budget_s)
        wide = replace(request, limit=max(request.limit, self._settings.rerank_hits_max // len(kinds)))
        found = self._recaller.recall_each(kinds, wide)
        hits = [hit for recall in found for hit in recall.hits]
        if len(hits) < 2:
            return found
        try:
            reranker = self._reranker()
            with self._breaker.guarded():
                relevances = reranker.scores(request.query, [hit.content for hit in hits], deadline.reranking_s)
        except (PgvectorError, ValueError) as error:
            reason = f"not re-ranked: {error}"
            return [replace(each, hits=each.hits[: request.limit], degraded=(*each.degraded, reason)) for each in found]
        ranked = iter(scored(hits, relevances))
        return [replace(each, hits=best(islice(ranked, len(each.hits)), request.limit)) for each in found]

    def empty_caches(self) -> None:
        """As `Recaller.empty_caches`."""
        self._recaller.empty_caches()

    def close(self) -> None:
        """Close the connections to the re-ranker. Safe to call twice."""
        with self._lock:
            if self._made is not None:
                self._made.close()

    def _reranker(self) -> Reranker:
        """The re-ranker, made on first use. Raises SettingsError."""
        with self._lock:
            self._made = self._made or build_reranker(self._settings)
            return self._made


def scored(hits: Sequence[Hit], relevances: Sequence[float]) -> list[Hit]:
    """The hits with their relevances, which also become their scores, scaled to [0, 1]."""
    low, span = min(relevances), max(relevances) - min(relevances)
    return [
        replace(hit, relevance=relevance, score=(relevance - low) / span if span else 1.0)
        for hit, relevance in zip(hits, relevances, strict=True)
    ]


def best(hits: Iterable[Hit], limit: int) -> tuple[Hit, ...]:
    """The hits with the highest relevances, best first; equal ones in the order given."""
    return tuple(sorted(hits, key=lambda hit: -(hit.relevance or 0.0))[:limit])
