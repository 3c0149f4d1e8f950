"""Which of the best rows become hits: those that are asked for, each text once, and questions set back. Pure."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from ..model import RecallRequest, Row
from . import utterance

K = TypeVar("K", bound=Hashable)

FETCHED_MIN = 20
# What a turn keeps of its score when all of it is questions.
ASKING_SHARE = 1.0


class Read(NamedTuple):
    """A row with what its text is compared and weighed by: its first words, and how much of it asks."""

    row: Row
    opening: str
    asking: float

    @classmethod
    def of(cls, row: Row) -> Read:
        return cls(row, utterance.opening(row.content), utterance.asking(row.content))


class Best(NamedTuple):
    """One of the best rows: what it scores, and how many of those read say the same."""

    row: Row
    score: float
    said: int = 1


def select(
    fetch: Callable[[Sequence[K]], Mapping[K, Read]], request: RecallRequest, scores: Mapping[K, float]
) -> dict[K, Best]:
    """The best rows of those that the request asks for, each text once, with how often it stands among those read.

    The scores are in their order, the best first. `fetch` returns those of the rows that are there; it is asked for as
    few as will do. Neighbours of what the legs found come from other times and sides, too.
    """
    best: dict[K, Best] = {}
    rows: dict[K, Read] = {}
    weighed: dict[K, float] = {}
    left, step = list(scores), max(FETCHED_MIN, 2 * request.limit)
    while left:
        keys, left = left[:step], left[step:]
        # Growing, because all that were read are looked through again each time.
        step *= 2
        rows |= fetch(keys)
        for key in keys:
            if key in rows and request.scope.holds(rows[key].row):
                weighed[key] = scores[key] * weight(rows[key].row.role, rows[key].asking)
        best = _once(rows, weighed, request.limit)
        # Those that follow weigh no more than they score.
        most = scores[left[0]] if left else 0.0
        if len(best) == request.limit and all(one.score >= most for one in best.values()):
            break
    return best


def weight(role: str, asking: float) -> float:
    """What a row keeps of its score, up to 1: a turn that asks stands back for those that may answer it."""
    return 1 - (1 - ASKING_SHARE) * asking if role else 1.0


def _once(rows: Mapping[K, Read], scores: Mapping[K, float], limit: int) -> dict[K, Best]:
    """The `limit` best of these rows, those that say the same as a better one counted with it."""
    best: dict[K, Best] = {}
    alike: dict[str, list[K]] = {}
    said = cache(lambda key: utterance.said(rows[key].row.content))
    for key, score in sorted(scores.items(), key=lambda scored: -scored[1]):
        others = alike.setdefault(rows[key].opening, [])
        first = next((other for other in others if said(other) == said(key)), None)
        if first is not None:
            best[first] = best[first]._replace(said=best[first].said + 1)
        elif len(best) < limit:
            best[key] = Best(rows[key].row, score)
            others.append(key)
    return best
