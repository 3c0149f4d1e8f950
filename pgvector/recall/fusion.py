"""Fusion: the results of both searches become one order. Pure.

Scores are fused and not ranks, which would lose how much better the first row is than the second. A cosine is scaled to
the range of the vector search, a word score to what the question can reach: where no row holds much of the question,
its words count little. The weighted sum of both is the score of a row.

A paraphrase or a translation has none of the question's words, and some other row has one of them by chance. So a row
whose cosine stands out from those of the other rows counts as if it held words that no row holds.

Neighbours in the session help a row in two ways. A word that the row lacks and a neighbour has counts in part. Then a
part of the neighbours' scores is added. Both parts halve with each step of distance, and are divided by how many times
as long as a message the row is: a long text says by itself what it is about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ..model import Period
from ..store.retrieval import Key, RelatedRows, ScannedRows
from .word_search import WordMatches, brevity, times_as_long

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VECTOR_WEIGHT = 0.17
# A row stands out completely when its cosine is so many standard deviations above that of the row with this rank. It
# then counts as if it held this share of what no row holds; one half as far above counts as if it held a quarter of it.
USUAL_RANK, OUTSTANDING_DEVIATIONS, OUTSTANDING_SHARE = 10, 4.0, 0.8
# Of fewer rows, one stands out by chance. Cosines of a model differ by more than this; those of equal texts may not.
OUTSTANDING_ROWS_MIN, DEVIATION_MIN = 40, 0.01
# Cosines are of half precision. A quotient by a smaller distance could overflow.
EQUAL_BELOW = 1e-9
NEIGHBOUR_SHARE = 0.17
CONTEXT_SHARE = 0.45
# Of the score of a row that is not of the period that the question names.
OTHER_TIME_SHARE = 0.5
STEPS = 3


class Span(NamedTuple):
    """The cosines that a vector search found: the `low`est and the `high`est.

    A row begins to stand out from the others at `usual`, and does so completely at `outstanding`.
    """

    low: float
    high: float
    usual: float = math.inf
    outstanding: float = math.inf


@dataclass(frozen=True, slots=True)
class Candidates:
    """The rows that a recall chooses from, each session in its order; each sequence has one place a row.

    Two `positions` differ by 1 only where a row directly follows another one of its session. `similarities` are
    cosines, NaN for a row without a vector. `word_scores` (rows × words) is what each of `words` adds to the BM25 score
    of a row, and `reachable` the score of one that holds all of them. `lengths` are numbers of terms, `times` seconds
    since 1970.
    """

    keys: Sequence[Key]
    positions: NDArray[np.int64]
    similarities: NDArray[np.float64]
    word_scores: NDArray[np.float64]
    words: Sequence[str]
    lengths: NDArray[np.int32]
    reachable: float = 0.0
    times: NDArray[np.float64] | None = None

    @property
    def before(self) -> dict[Key, Key]:
        """For each row that directly follows another one of its session, that one."""
        follows = self.positions[1:] - self.positions[:-1] == 1
        return {self.keys[place + 1]: self.keys[place] for place in follows.nonzero()[0].tolist()}


def candidates_of(rows: ScannedRows | RelatedRows, nearest: Mapping[Key, float], matches: WordMatches) -> Candidates:
    """The rows that the searches found, and those before and after each of them in its session.

    `nearest` has the cosines of the rows that the vector search found. That of a long text can be higher than the one
    in `rows`, because it is that of the nearest of its chunks. A found row that is not in `rows` any more is left out.
    """
    import numpy as np

    order = np.lexsort((rows.ids, rows.times, rows.sessions))
    sessions = rows.sessions[order]
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = sessions[1:] == sessions[:-1]
    if isinstance(rows, RelatedRows):
        follows[1:] &= rows.previous[order][1:] == rows.ids[order][:-1]
    places = {key: place for place, key in enumerate(rows.keys)}
    near = [places[key] for key in nearest if key in places]
    similarities = rows.cosines.copy()
    similarities[near] = [cosine for key, cosine in nearest.items() if key in places]
    holding = [number for number, key in enumerate(matches.keys) if key in places]
    worded = [places[matches.keys[number]] for number in holding]
    scores = np.zeros((len(order), len(matches.words)))
    scores[worded] = matches.scores[holding]
    found = np.zeros(len(order), dtype=bool)
    found[near] = found[worded] = True
    found = found[order]
    kept = found.copy()
    kept[:-1] |= (found & follows)[1:]
    kept[1:] |= found[:-1] & follows[1:]
    # Rows follow each other one apart in a session, and more elsewhere.
    positions = np.arange(len(order)) + np.cumsum(~follows)
    chosen = order[kept]
    keys = [rows.keys[place] for place in chosen.tolist()]
    return Candidates(
        keys,
        positions[kept],
        similarities[chosen],
        scores[chosen],
        matches.words,
        rows.lengths[chosen],
        matches.reachable,
        rows.times[chosen],
    )


def span_of(cosines: Sequence[float], rows: int) -> Span | None:
    """The span of the highest `cosines` of a scope that has so many rows; None without any.

    The standard deviation of the cosines of all rows is that of the normal distribution for which two of these cosines
    are the quantiles of their ranks. With fewer than OUTSTANDING_ROWS_MIN cosines no row stands out.
    """
    if not cosines:
        return None
    found = len(cosines)
    ordered = sorted(cosines, reverse=True)
    high, low = ordered[0], ordered[-1]
    if found < OUTSTANDING_ROWS_MIN:
        return Span(low, high)
    from statistics import NormalDist  # at the first recall, as numpy

    usual = ordered[USUAL_RANK - 1]
    expected = [NormalDist().inv_cdf(1 - (rank - 0.5) / max(rows, found)) for rank in (USUAL_RANK, found)]
    deviation = max(DEVIATION_MIN, (usual - low) / (expected[0] - expected[1]))
    return Span(low, high, usual, usual + OUTSTANDING_DEVIATIONS * deviation)


def fuse(found: Candidates, *, span: Span | None = None, period: Period | None = None) -> dict[Key, float]:
    """The fused score of each candidate, best first; scores are in [0, 1].

    `span` is that of the cosines which the vector search found, to which similarities are scaled; None takes the lowest
    and the highest of the candidates. Rows that are not of the `period` count less.
    """
    import numpy as np

    # By distance: whether two rows so many places apart are as far apart in one session.
    joined = {away: found.positions[away:] - found.positions[:-away] == away for away in range(1, STEPS + 1)}
    shortness = 1 / times_as_long(found.lengths, found.words)
    by_words = _with_context(found.word_scores, joined, shortness).sum(axis=1)
    reachable = max(by_words.max(initial=0.0), found.reachable) or 1.0
    by_words /= reachable
    cosines = found.similarities
    span = span or Span(np.fmin.reduce(cosines, initial=math.inf), np.fmax.reduce(cosines, initial=-math.inf))
    by_vector = _scaled(cosines, span.low, span.high)
    if span.usual < span.outstanding:
        # Of a long row, all that it holds: it is not found by chance.
        held = (found.word_scores.sum(axis=1) / brevity(found.lengths, found.words)).max(initial=0.0) / reachable
        added = OUTSTANDING_SHARE * max(0.0, 1 - held) * _scaled(cosines, span.usual, span.outstanding) ** 2
        by_words += added * (1 - by_words)
    own = VECTOR_WEIGHT * by_vector + (1 - VECTOR_WEIGHT) * by_words
    total = own.copy()
    for away, together in joined.items():
        share = NEIGHBOUR_SHARE * _decay(away) * together
        total[away:] += shortness[away:] * share * own[:-away]
        total[:-away] += shortness[:-away] * share * own[away:]
    if period and found.times is not None:
        during = (found.times >= period.since.timestamp()) & (found.times < period.until.timestamp())
        total[~during] *= OTHER_TIME_SHARE
    highest = 1 + 2 * NEIGHBOUR_SHARE * sum(map(_decay, range(1, STEPS + 1)))
    scores = zip((-total / highest).tolist(), found.keys, strict=True)
    # Equal scores keep the order of the keys, so that the same question always gets the same answer.
    return {key: -score for score, key in sorted(scores)}


def _decay(away: int) -> float:
    """The factor of a share at this distance."""
    return 0.5 ** (away - 1)


def _with_context(
    own: NDArray[np.float64], joined: Mapping[int, NDArray[np.bool_]], shortness: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The word scores of each row (rows × words), raised by those of its neighbours, less for a long row."""
    import numpy as np

    scores = own.copy()
    for away, together in joined.items():
        share = CONTEXT_SHARE * _decay(away) * together
        np.maximum(scores[away:], (share * shortness[away:])[:, np.newaxis] * own[:-away], out=scores[away:])
        np.maximum(scores[:-away], (share * shortness[:-away])[:, np.newaxis] * own[away:], out=scores[:-away])
    return scores


def _scaled(similarities: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """The similarities scaled to [0, 1] from `low` to `high`; 0 for a row without one."""
    import numpy as np

    scaled = (similarities - low) / (high - low) if high - low > EQUAL_BELOW else similarities * 0 + 1
    clipped: NDArray[np.float64] = np.minimum(np.fmax(scaled, 0), 1)
    return clipped
