"""Word search: the rows that hold words of the question, scored by BM25.

The score is that of Robertson and Zaragoza (2009) with term frequency taken as 1, terms ORed, and inverse document
frequencies raised to a power. Lengths are compared with a fixed one and not with the mean of the rows, so that it does
not matter for a short row which other rows there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..store.retrieval import Key, ScannedRows, WordCandidates
from ..text.cleaning import UNSPACED_FROM
from ..text.function_words import function_words
from ..text.question_words import question_words

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BM25_K1, IDF_POWER = 1.1, 1.6
# Terms of a row that is as long as a message; a text of several passages counts as one of LENGTHS_MAX times that.
LENGTH, LENGTHS_MAX = 30, 4.5
# Terms, single characters and pairs, that a script without spaces has for each word of another one.
UNSPACED_TERMS = 3
# Of the weight of a function word, which tells the language of a row, and of a word that questions are asked with.
FUNCTION_SHARE, QUESTION_SHARE = 0.1, 0.2


@dataclass(frozen=True, slots=True)
class WordMatches:
    """The best rows by their words, best first; `scores` (rows × words) is what each of `words` adds to a row.

    `reachable` is the score of a short row that holds all of them.
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
    shares = dict.fromkeys(question_words(rows.words), QUESTION_SHARE)
    shares |= dict.fromkeys(function_words(rows.words), FUNCTION_SHARE)
    weights *= [shares.get(word, 1.0) for word in rows.words]
    matching = np.flatnonzero(rows.held.any(axis=1))
    scores = brevity(rows.lengths[matching], rows.words)[:, np.newaxis] * (rows.held[matching] * weights)
    # Not as a product of matrices, whose order of additions depends on the place of a row.
    best = np.lexsort((rows.ids[matching], -scores.sum(axis=1)))[:limit]
    keys = [rows.keys[place] for place in matching[best].tolist()]
    return WordMatches(keys, scores[best], rows.words, float(weights.sum()))


def brevity(lengths: NDArray[np.int32], words: Sequence[str]) -> NDArray[np.float64]:
    """By what BM25 multiplies the word scores of rows of these numbers of terms; 1 for a message, less for more."""
    return (BM25_K1 + 1) / (1 + BM25_K1 * times_as_long(lengths, words))


def times_as_long(lengths: NDArray[np.int32], words: Sequence[str]) -> NDArray[np.float64]:
    """How many times as long as a message rows of these numbers of terms are, from 1 to LENGTHS_MAX.

    The rows are taken to be in the script of the `words` of the question.
    """
    import numpy as np

    unspaced = 2 * sum(word >= UNSPACED_FROM for word in words) > len(words)
    times: NDArray[np.float64] = np.clip(lengths / (LENGTH * UNSPACED_TERMS if unspaced else LENGTH), 1, LENGTHS_MAX)
    return times
