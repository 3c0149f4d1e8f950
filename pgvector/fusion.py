"""Fusion: what the two legs found becomes one order. Pure.

Scores are fused, not ranks, which would throw away how much better the first is than the second: a cosine is stretched
over the range that the near leg saw, the words of a row are weighed against the most that any row holds.

A turn is often found by what is said around it, so nearness in the session counts twice. A word that a row lacks and a
neighbour holds is the row's in part; and a row is given a part of what its neighbours score. Both parts halve with each
step away.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class _Sortable(Hashable, Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


K = TypeVar("K", bound=_Sortable)

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
    import numpy as np  # at the first recall: a host loads this module at its start

    line = list(_line({candidate.key: candidate for candidate in candidates}))
    low, high = span or _span(line)
    worded = _worded(line)
    meant = np.array([_stretched(row.similarity, low, high) if row else 0.0 for row in line])
    own = MEANING_WEIGHT * meant + (1 - MEANING_WEIGHT) * worded / (worded.max(initial=0.0) or 1.0)
    own[[row is None for row in line]] = 0.0
    total = own.copy()
    for away in range(1, STEPS + 1):
        share = NEIGHBOUR_SHARE * _fading(away)
        total[away:] += share * own[:-away]
        total[:-away] += share * own[away:]
    most = 1 + 2 * NEIGHBOUR_SHARE * sum(map(_fading, range(1, STEPS + 1)))
    scores = [(-score, row.key) for row, score in zip(line, (total / most).tolist(), strict=True) if row]
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return {key: -score for score, key in sorted(scores)}


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


def _worded(line: Sequence[Candidate[K] | None]) -> NDArray[np.float64]:
    """What the words of each place are worth, with those that its neighbours lend it."""
    import numpy as np

    held = [(place, word, worth) for place, row in enumerate(line) if row for word, worth in row.words.items()]
    columns = {word: column for column, word in enumerate(dict.fromkeys(word for _, word, _ in held))}
    # A place by word.
    own = np.zeros((len(line), len(columns)))
    own[[place for place, _, _ in held], [columns[word] for _, word, _ in held]] = [worth for _, _, worth in held]
    worth = own.copy()
    for away in range(1, STEPS + 1):
        lent = CONTEXT_SHARE * _fading(away) * own
        np.maximum(worth[away:], lent[:-away], out=worth[away:])
        np.maximum(worth[:-away], lent[away:], out=worth[:-away])
    total: NDArray[np.float64] = worth.sum(axis=1)
    return total


def _span(line: Iterable[Candidate[K] | None]) -> tuple[float, float]:
    similarities = [row.similarity for row in line if row and row.similarity is not None]
    return (min(similarities), max(similarities)) if similarities else (0.0, 0.0)


def _stretched(similarity: float | None, low: float, high: float) -> float:
    if similarity is None:
        return 0.0
    return 1.0 if high <= low else min(1.0, max(0.0, (similarity - low) / (high - low)))
