"""Ambient recall: the memories put before a turn."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .model import Hit, Recall, RecallRequest, Scope

if TYPE_CHECKING:
    from .runtime import Runtime

BUDGET_AWAY_S = 0.3


def ambient(runtime: Runtime, theme: str, query: str, session_id: str) -> Recall:
    """The best entries and, by setting, turns of other sessions, within `prefetch_budget_s`."""
    settings = runtime.settings
    # While the database is away, a turn must not wait the whole budget for nothing, and still notices its return.
    budget_s = settings.prefetch_budget_s
    deadline = time.monotonic() + (min(budget_s, BUDGET_AWAY_S) if runtime.writer.health.problem else budget_s)
    hits: list[Hit] = []
    degraded: dict[str, None] = {}
    for kind in ("entries", "turns") if settings.prefetch_turns else ("entries",):
        request = RecallRequest(
            query=query,
            # A turn of the running session is in the model's context already.
            scope=Scope(theme, (theme,), without_session=session_id),
            limit=2 * settings.prefetch_limit,
            budget_s=max(0.1, deadline - time.monotonic()),
        )
        recall = runtime.recall(kind, request)
        degraded.update(dict.fromkeys(recall.degraded))
        hits += recall.hits
    return Recall(tuple(_relevant(hits, runtime.fitting.floor)[: settings.prefetch_limit]), tuple(degraded))


def _relevant(hits: list[Hit], floor: float | None) -> list[Hit]:
    """The hits that have to do with the question, best first; without a floor or vectors, as the legs ranked them."""
    kept = [hit for hit in hits if floor is None or hit.similarity is None or hit.similarity >= floor]
    return sorted(kept, key=lambda hit: -hit.score)
