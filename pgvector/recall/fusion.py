"""Fusion: what the two legs found becomes one order. Pure.

Scores are fused, not ranks, which would throw away how much better the first is than the second: a cosine is stretched
over the range that the near leg saw, the words of a row are weighed against the most that any row holds.

A turn is often found by what is said around it, so nearness in the session counts twice. A word that a row lacks and a
neighbour holds is the row's in part; and a row is given a part of what its neighbours score. Both parts halve with each
step away.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

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


@dataclass(frozen=True, slots=True)
class Line(Generic[K]):
    """Candidates as they stand in their sessions, one session behind the other; a place of each sequence is a row.

    `positions` are numbers of which two follow one another only where a row stands behind another one of its session.
    `similarities` are NaN for a row without one; `worths` (rows × words) is what each of `words` is worth to each row.
    """

    keys: Sequence[K]
    positions: NDArray[np.int64]
    similarities: NDArray[np.float64]
    worths: NDArray[np.float64]
    words: Sequence[str]


def fuse(found: Line[K], *, span: tuple[float, float] | None = None) -> dict[K, float]:
    """The fused score of each candidate, best first; scores are in [0, 1].

    `span` is the lowest and highest cosine of the near leg, over which similarities are stretched; None takes it from
    the candidates.
    """
    # Whether places so many steps apart stand as far apart in one session.
    joined = {away: found.positions[away:] - found.positions[:-away] == away for away in range(1, STEPS + 1)}
    worded = _worded(found.worths, joined)
    meant = _meant(found.similarities, span)
    own = MEANING_WEIGHT * meant + (1 - MEANING_WEIGHT) * worded / (worded.max(initial=0.0) or 1.0)
    total = own.copy()
    for away, together in joined.items():
        share = NEIGHBOUR_SHARE * _fading(away) * together
        total[away:] += share * own[:-away]
        total[:-away] += share * own[away:]
    most = 1 + 2 * NEIGHBOUR_SHARE * sum(map(_fading, range(1, STEPS + 1)))
    scores = zip((-total / most).tolist(), found.keys, strict=True)
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return {key: -score for score, key in sorted(scores)}


def _fading(away: int) -> float:
    """What is left of a share so many steps away."""
    return 0.5 ** (away - 1)


def _worded(own: NDArray[np.float64], joined: Mapping[int, NDArray[np.bool_]]) -> NDArray[np.float64]:
    """What the words of each place are worth, with those that its neighbours lend it."""
    import numpy as np

    worth = own.copy()
    for away, together in joined.items():
        lent = CONTEXT_SHARE * _fading(away) * together[:, np.newaxis]
        np.maximum(worth[away:], lent * own[:-away], out=worth[away:])
        np.maximum(worth[:-away], lent * own[away:], out=worth[:-away])
    total: NDArray[np.float64] = worth.sum(axis=1)
    return total


def _meant(similarities: NDArray[np.float64], span: tuple[float, float] | None) -> NDArray[np.float64]:
    """The similarity of each place, stretched over the span; 0 for one without."""
    import numpy as np

    low, high = span or (
        np.fmin.reduce(similarities, initial=math.inf),
        np.fmax.reduce(similarities, initial=-math.inf),
    )
    stretched = (similarities - low) / (high - low) if low < high else similarities * 0 + 1
    meant: NDArray[np.float64] = np.minimum(np.fmax(stretched, 0), 1)
    return meant
