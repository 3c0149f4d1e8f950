"""Word search: the rows that hold words of the question, scored by BM25.

The score is that of Robertson and Zaragoza (2009) with term frequency taken as 1, terms ORed, and inverse document
frequencies raised to a power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..store.retrieval import Key, ScannedRows, WordCandidates
from ..text.function_words import function_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Measured on conversations: short rows need little length normalisation, and rarity counts twice, in row and question.
BM25_K1, BM25_B, IDF_POWER = 0.9, 0.5, 2
# Of the weight of a function word: it tells the language of a row, and nothing else.
FUNCTION_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The best rows by their words, best first; `scores` (rows × words) is what each of `words` adds to a row.

    `reachable` is the score of a row of mean length that holds all of them.
    """

    keys: list[Key]
    scores: NDArray[np.float64]
    words: Sequence[str]
    reachable: float = 0.0


def bm25(
    rows: ScannedRows | WordCandidates, limit: int, *, total: float, expected: NDArray[np.float64] | float = 0.0
) -> WordMatches:
    """The `limit` best of these rows; of equal ones those with the lowest ids.

    `total` is the number of rows of the scope, `expected` how many of them hold each word at least, where not all of
    them are given.
    """
    import numpy as np  # at the first recall: a host loads this module at its start

    holding = np.maximum(rows.held.sum(axis=0), expected)
    weights = np.log(1 + (np.maximum(total, holding) - holding + 0.5) / (holding + 0.5)) ** IDF_POWER
    noise = function_words(rows.words)
    weights *= [FUNCTION_SHARE if word in noise else 1.0 for word in rows.words]
    matching = np.flatnonzero(rows.held.any(axis=1))
    lengths = rows.lengths[matching]
    mean = lengths.sum() / max(1, len(matching))
    brevity = (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B + BM25_B * lengths / mean))
    scores = brevity[:, np.newaxis] * (rows.held[matching] * weights)
    # Not as a product of matrices, whose order of additions depends on the place of a row.
    best = np.lexsort((rows.ids[matching], -scores.sum(axis=1)))[:limit]
    keys = [rows.keys[place] for place in matching[best].tolist()]
    return WordMatches(keys, scores[best], rows.words, float(weights.sum()))
