"""Fusion: what the two legs found becomes one order. Pure.

Scores are fused, not ranks, which would throw away how much better the first is than the second: a cosine is stretched
over the range that the near leg saw, the words of a row are weighed against the most that any row holds.

A turn is often found by what is said around it, so nearness in the session counts twice. A word that a row lacks and a
neighbour holds is the row's in part; and a row is given a part of what its neighbours score. Both parts halve with each
step away.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MEANING_WEIGHT = 0.3
NEIGHBOUR_SHARE = 0.3
CONTEXT_SHARE = 0.4
STEPS = 3


@dataclass(frozen=True, slots=True)
class Candidate(Generic[K]):
    """A row that a leg found, or a neighbour of one.

    `words` is what each of the question's words that it holds is worth. `previous` is the row before it in its session.
    """

    key: K
    similarity: float | None
    words: Mapping[str, float] = field(default_factory=dict)
    previous: K | None = None


def fuse(candidates: Iterable[Candidate[K]], *, span: tuple[float, float] | None = None) -> dict[K, float]:
    """The fused score of each candidate, best first; scores are in [0, 1].

    `span` is the lowest and highest cosine of the near leg, over which similarities are stretched; None takes it from
    the candidates.
    """
    found = {candidate.key: candidate for candidate in candidates}
    around = {key: list(neighbours) for key, neighbours in _neighbours(found)}
    low, high = span or _span(found)
    worded = {key: _worded(candidate, found, around[key]) for key, candidate in found.items()}
    most_words = max(worded.values(), default=0.0) or 1.0
    own = {
        key: MEANING_WEIGHT * _stretched(candidate.similarity, low, high)
        + (1 - MEANING_WEIGHT) * worded[key] / most_words
        for key, candidate in found.items()
    }
    total = {
        key: own[key] + NEIGHBOUR_SHARE * sum(own[other] / 2**away for other, away in around[key]) for key in found
    }
    most = 1 + 2 * NEIGHBOUR_SHARE * sum(1 / 2**away for away in range(STEPS))
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return {key: total[key] / most for key in sorted(total, key=lambda key: (-total[key], str(key)))}


def _neighbours(found: Mapping[K, Candidate[K]]) -> Iterator[tuple[K, Iterator[tuple[K, int]]]]:
    """Each row with the rows around it in its session, and how many steps beyond the first they are."""
    before = {
        key: candidate.previous
        for key, candidate in found.items()
        if candidate.previous is not None and candidate.previous in found
    }
    after = {previous: key for key, previous in before.items()}
    for key in found:
        yield key, (step for links in (before, after) for step in _steps(key, links))


def _steps(key: K, links: Mapping[K, K]) -> Iterator[tuple[K, int]]:
    at = key
    for away in range(STEPS):
        if at not in links or links[at] == key:
            return
        at = links[at]
        yield at, away


def _worded(candidate: Candidate[K], found: Mapping[K, Candidate[K]], around: Iterable[tuple[K, int]]) -> float:
    worth = dict(candidate.words)
    for key, away in around:
        for word, other in found[key].words.items():
            worth[word] = max(worth.get(word, 0.0), CONTEXT_SHARE * other / 2**away)
    return sum(worth[word] for word in sorted(worth))


def _span(found: Mapping[K, Candidate[K]]) -> tuple[float, float]:
    similarities = [candidate.similarity for candidate in found.values() if candidate.similarity is not None]
    return (min(similarities), max(similarities)) if similarities else (0.0, 0.0)


def _stretched(similarity: float | None, low: float, high: float) -> float:
    if similarity is None:
        return 0.0
    return 1.0 if high <= low else min(1.0, max(0.0, (similarity - low) / (high - low)))
