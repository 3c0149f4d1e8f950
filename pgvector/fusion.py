"""Fusion: what the two legs found becomes one order. Pure.

Scores are fused, not ranks, which would throw away how much better the first is than the second: a cosine is stretched
over the range that the near leg saw, the words of a row are weighed against the most that any row holds.

A turn is often found by what is said around it, so nearness in the session counts twice. A word that a row lacks and a
neighbour holds is the row's in part; and a row is given a part of what its neighbours score. Both parts halve with each
step away.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)

MEANING_WEIGHT = 0.3
NEIGHBOUR_SHARE = 0.3
CONTEXT_SHARE = 0.4
STEPS = 3

_GAP = (None,) * STEPS
_NO_WORDS: Mapping[str, float] = MappingProxyType({})


class Candidate(NamedTuple, Generic[K]):
    """A row that a leg found, or a neighbour of one.

    `words` is what each of the question's words that it holds is worth. `previous` is the row before it in its session.
    """

    key: K
    similarity: float | None
    words: Mapping[str, float] = _NO_WORDS
    previous: K | None = None


def fuse(candidates: Iterable[Candidate[K]], *, span: tuple[float, float] | None = None) -> dict[K, float]:
    """The fused score of each candidate, best first; scores are in [0, 1].

    `span` is the lowest and highest cosine of the near leg, over which similarities are stretched; None takes it from
    the candidates.
    """
    line = list(_line({candidate.key: candidate for candidate in candidates}))
    low, high = span or _span(line)
    worded = _worded(line)
    most_words = max(worded, default=0.0) or 1.0
    own = [
        MEANING_WEIGHT * _stretched(row.similarity, low, high) + (1 - MEANING_WEIGHT) * words / most_words
        if row
        else 0.0
        for row, words in zip(line, worded, strict=True)
    ]
    total = own
    for away in range(1, STEPS + 1):
        share, beyond = NEIGHBOUR_SHARE * _fading(away), [0.0] * away
        before, after = beyond + own, own[away:] + beyond
        total = [sum_ + share * (left + right) for sum_, left, right in zip(total, before, after, strict=False)]
    most = 1 + 2 * NEIGHBOUR_SHARE * sum(map(_fading, range(1, STEPS + 1)))
    scores = [(row.key, score / most) for row, score in zip(line, total, strict=True) if row]
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return dict(sorted(scores, key=lambda scored: (-scored[1], str(scored[0]))))


def _fading(away: int) -> float:
    """What is left of a share so many steps away."""
    return 0.5 ** (away - 1)


def _line(found: Mapping[K, Candidate[K]]) -> Iterator[Candidate[K] | None]:
    """The rows as they stand in their sessions, one session behind the other, with a gap that no share crosses."""
    after = {row.previous: row.key for row in found.values()}
    left = dict(found)
    # Those with nobody before them first: from these the others are reached, unless rows name each other.
    for start in sorted(found, key=lambda key: found[key].previous in found):
        at: K | None = start
        if at in left:
            yield from _GAP
        while at in left:
            yield left.pop(at)
            at = after.get(at)
    yield from _GAP


def _worded(line: Sequence[Candidate[K] | None]) -> list[float]:
    """What the words of each place are worth, with those that its neighbours lend it."""
    worth = [dict(row.words) if row else {} for row in line]
    for place, row in enumerate(line):
        if row is None or not row.words:
            continue
        for away in range(1, STEPS + 1):
            share = CONTEXT_SHARE * _fading(away)
            for lent in (worth[place - away], worth[place + away]):
                for word, of_word in row.words.items():
                    if share * of_word > lent.get(word, 0.0):
                        lent[word] = share * of_word
    return [math.fsum(words.values()) if row and words else 0.0 for row, words in zip(line, worth, strict=True)]


def _span(line: Iterable[Candidate[K] | None]) -> tuple[float, float]:
    similarities = [row.similarity for row in line if row and row.similarity is not None]
    return (min(similarities), max(similarities)) if similarities else (0.0, 0.0)


def _stretched(similarity: float | None, low: float, high: float) -> float:
    if similarity is None:
        return 0.0
    return 1.0 if high <= low else min(1.0, max(0.0, (similarity - low) / (high - low)))
