"""Re-ranking: a model at an endpoint orders the first hits of a recall anew, within the recall's deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Protocol

from ..embedding.breaker import CircuitBreaker
from ..embedding.factory import build_reranker
from ..errors import PgvectorError
from ..model import Hit, Recall, RecallRequest
from ..outbox.heartbeat import Recalls
from ..settings import Settings
from ..store.queries import Kind
from ..store.retrieval import Key
from ..text.alike import comparable
from .deadline import Deadline
from .grouping import FLOOD_MIN, FLOOD_SHOWN, Families

if TYPE_CHECKING:
    from ..embedding.reranker import Reranker


class Recalling(Protocol):
    """What answers recalls; see `Recaller`."""

    def recall(self, kind: Kind, request: RecallRequest) -> Recall: ...
    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]: ...
    def recalls(self) -> Recalls: ...
    def empty_caches(self) -> None: ...
    def close(self) -> None: ...


class RerankingRecaller:
    """A recaller whose first hits a re-ranker orders. Safe for any thread.

    Of a request, `rerank_hits_max` hits are re-ranked, or as many as it asks for. When the re-ranker is late or down,
    the hits keep their order, and the answer says so. No connection to the database is held meanwhile. Pointers stand
    behind the hits and are not re-ranked.
    """

    def __init__(self, recaller: Recalling, settings: Settings) -> None:
        self._recaller, self._settings = recaller, settings
        self._lock = threading.Lock()
        self._made: Reranker | None = None
        self._breaker = CircuitBreaker()

    def recalls(self) -> Recalls:
        """As `Recaller.recalls`."""
        return self._recaller.recalls()

    def recall(self, kind: Kind, request: RecallRequest) -> Recall:
        """As `Recaller.recall`."""
        return self.recall_each((kind,), request)[0]

    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]:
        """As `Recaller.recall_each`. The kinds are re-ranked together, so that their scores can be compared."""
        deadline = Deadline(request.budget_s)
        wide = replace(request, limit=max(request.limit, self._settings.rerank_hits_max // len(kinds)))
        found = self._recaller.recall_each(kinds, wide)
        pointers = [tuple(hit for hit in recall.hits if hit.pointer) for recall in found]
        found = [replace(each, hits=tuple(hit for hit in each.hits if not hit.pointer)) for each in found]
        ranked = self._ranked(kinds, request, found, deadline)
        return [replace(each, hits=each.hits + last) for each, last in zip(ranked, pointers, strict=True)]

    def _ranked(
        self, kinds: Sequence[Kind], request: RecallRequest, found: list[Recall], deadline: Deadline
    ) -> list[Recall]:
        hits = [hit for recall in found for hit in recall.hits]
        if len(hits) < 2:
            return found
        try:
            reranker = self._reranker()
            with self._breaker.guarded():
                relevances = reranker.scores(request.query, [hit.content for hit in hits], deadline.reranking_s)
        except (PgvectorError, ValueError) as error:
            reason = f"not re-ranked: {error}"
            found, ranked = [replace(each, degraded=(*each.degraded, reason)) for each in found], iter(hits)
        else:
            ranked = iter(scored(hits, relevances))
        each_best = [best(islice(ranked, len(each.hits))) for each in found]
        return [
            replace(each, hits=tuple(hits[: request.limit]) if kind == "facts" else grouped(hits, request.limit))
            for kind, each, hits in zip(kinds, found, each_best, strict=True)
        ]

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


def best(hits: Iterable[Hit]) -> list[Hit]:
    """The hits by their relevances, best first; equal ones in the order given."""
    return sorted(hits, key=lambda hit: -(hit.relevance or 0.0))


def grouped(hits: Sequence[Hit], limit: int) -> tuple[Hit, ...]:
    """The first `limit` of the hits, grouped as they were before their re-ranking.

    A superseded one stands behind the newer one, few of a flood stand before others, and `alike` counts the rest of it.
    Scores descend, to 0 for the rest of a flood: they order the hits among those of other kinds.
    """
    families, by_key = Families(), {(hit.theme, hit.id): hit for hit in hits}
    for key, hit in by_key.items():
        families.add(key, comparable(hit.content))
    alike = [members for members in families.members if _is_flood(members, by_key)]
    late = {key for members in alike for key in members[FLOOD_SHOWN:]}
    newer = {(hit.id, hit.at): hit for hit in hits}
    # Sorting keeps the order of the others.
    order = sorted(by_key, key=late.__contains__)
    order = list(dict.fromkeys(key for place in order for key in _from_newest(by_key[place], newer)))[:limit]
    counts = {}
    for members in alike:
        shown = next((key for key in order if key in members), None)
        left_out = sum(by_key[key].alike for key in members) + len(set(members).difference(order))
        counts.update({key: left_out if key == shown else 0 for key in members})
    # A hit that was moved before others has the score of the best of them.
    own = [0.0 if key in late else by_key[key].score for key in order]
    scores = list(accumulate(reversed(own), max))[::-1]
    return tuple(
        replace(by_key[key], score=score, alike=counts.get(key, by_key[key].alike))
        for key, score in zip(order, scores, strict=True)
    )


def _is_flood(members: Sequence[Key], by_key: Mapping[Key, Hit]) -> bool:
    return len(members) + sum(by_key[key].alike for key in members) > FLOOD_MIN


def _from_newest(hit: Hit, newer: Mapping[tuple[int, datetime], Hit]) -> list[Key]:
    """The hits that supersede a hit, the newest first, and the hit."""
    later = newer.get(hit.newer) if hit.newer else None
    return [*(_from_newest(later, newer) if later else ()), (hit.theme, hit.id)]
