"""Score fusion: the two legs of a recall become one order. Pure.

Scores are fused, not ranks: half the cosine, stretched over the range that the near leg saw, and half the BM25 score
over its maximum. Ranks would throw away how much better the first is than the second.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MEANING_WEIGHT = 0.5
NEIGHBOUR_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Candidate(Generic[K]):
    """A row that a leg found, or a neighbour of one. `previous` is the row before it in its session."""

    key: K
    similarity: float | None
    words: float = 0.0
    previous: K | None = None


def fuse(
    candidates: Iterable[Candidate[K]], *, share: float = NEIGHBOUR_SHARE, span: tuple[float, float] | None = None
) -> dict[K, float]:
    """The fused score of each candidate, best first; scores are in [0, 1].

    `span` is the lowest and highest cosine of the near leg, over which similarities are stretched; None takes it from
    the candidates. `share` is the part of its neighbours' scores that a row is given, because a turn is
    often found by what was said around it.
    """
    found = {candidate.key: candidate for candidate in candidates}
    low, high = span or _span(found)
    most_words = max((candidate.words for candidate in found.values()), default=0.0)
    own = {key: _own_score(candidate, low, high, most_words) for key, candidate in found.items()}
    total = dict(own)
    for key, candidate in found.items():
        if candidate.previous in own:
            total[key] += share * own[candidate.previous]
            total[candidate.previous] += share * own[key]
    most = 1 + 2 * share
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return {key: total[key] / most for key in sorted(total, key=lambda key: (-total[key], str(key)))}


def _span(found: Mapping[K, Candidate[K]]) -> tuple[float, float]:
    similarities = [candidate.similarity for candidate in found.values() if candidate.similarity is not None]
    return (min(similarities), max(similarities)) if similarities else (0.0, 0.0)


def _own_score(candidate: Candidate[K], low: float, high: float, most_words: float) -> float:
    meaning = 0.0
    if candidate.similarity is not None:
        meaning = 1.0 if high <= low else min(1.0, max(0.0, (candidate.similarity - low) / (high - low)))
    words = candidate.words / most_words if most_words > 0 else 0.0
    return MEANING_WEIGHT * meaning + (1 - MEANING_WEIGHT) * words
