"""A scope that was read whole: what each leg finds in it, and who stands beside whom. Pure.

Words are scored by BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, the terms ORed and their weights
squared, because a word is rare in the row and in the question.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, int]

# BM25 as measured best on conversations: short documents want little length normalisation.
BM25_K1, BM25_B = 0.9, 0.4


class Relation(NamedTuple):
    """A candidate or a neighbour of one: its similarity to the question, and who stands before it in its session."""

    key: Key
    similarity: float | None
    previous: Key | None


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a scope as a question sees them; a place of each sequence is a row.

    The rows of a session, which is named with its theme, stand one behind the other. `cosines` are those to the
    question, None without a vector; `lengths` is how many different terms a row has, `held` which of the question's:
    bit n stands for the nth of `words`, from which the terms were made.
    """

    keys: Sequence[Key]
    sessions: Sequence[tuple[str, str]]
    cosines: Sequence[float | None]
    lengths: Sequence[int]
    held: Sequence[int]
    words: Sequence[str]

    def near(self, limit: int) -> dict[Key, float]:
        """The `limit` rows nearest to the question with their cosines, the nearest first."""
        import numpy as np  # at the first recall: a host loads this module at its start

        cosines = np.array(self.cosines, dtype=float)
        best = np.argsort(-cosines, kind="stable")[: min(limit, np.count_nonzero(~np.isnan(cosines)))]
        return {self.keys[place]: cosine for place, cosine in zip(best.tolist(), cosines[best].tolist(), strict=True)}

    def worded(self, limit: int) -> dict[Key, dict[str, float]]:
        """The `limit` best rows by the words of the question, best first, with what each word adds to their score."""
        import numpy as np

        places = [place for place, held in enumerate(self.held) if held]
        if not places:
            return {}
        worths = self._worths(Counter(self.held[place] for place in places))
        total = {held: math.fsum(worth.values()) for held, worth in worths.items()}
        lengths = np.array([self.lengths[place] for place in places], dtype=float)
        brevity = (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B + BM25_B * lengths / lengths.mean()))
        scores = brevity * np.array([total[self.held[place]] for place in places])
        best = np.argsort(-scores, kind="stable")[:limit]
        found = [(places[n], short) for n, short in zip(best.tolist(), brevity[best].tolist(), strict=True)]
        return {
            self.keys[place]: {word: worth * short for word, worth in worths[self.held[place]].items()}
            for place, short in found
        }

    def related(self, keys: Iterable[Key]) -> list[Relation]:
        """These rows and their neighbours in the session, each with who stands before it.

        A key that is not among the rows, because its row came after they were read, is left out.
        """
        places = {key: place for place, key in enumerate(self.keys)}
        # Whether a row stands behind another one of its session; nobody does behind the last.
        follows = [False, *(before == after for before, after in pairwise(self.sessions)), False]
        found = {places[key] for key in keys if key in places}
        before = {place - 1 for place in found if follows[place]}
        after = {place + 1 for place in found if follows[place + 1]}
        return [
            Relation(self.keys[place], self.cosines[place], self.keys[place - 1] if follows[place] else None)
            for place in sorted(found | before | after)
        ]

    def _worths(self, rows: Mapping[int, int]) -> dict[int, dict[str, float]]:
        """What each word is worth to the rows that hold the same terms, by these terms. `rows` is how many they are."""
        terms = {held: [n for n in range(len(self.words)) if held >> n & 1] for held in rows}
        holding: Counter[int] = Counter()
        for held, times in rows.items():
            holding.update(dict.fromkeys(terms[held], times))
        weights = {n: _weight(times, len(self.keys)) for n, times in holding.items()}
        worths: dict[int, dict[str, float]] = {}
        for held in rows:
            worth = worths[held] = {}
            # Several terms can come from one word.
            for n in terms[held]:
                worth[self.words[n]] = worth.get(self.words[n], 0.0) + weights[n]
        return worths


def _weight(holding: int, rows: int) -> float:
    """The squared inverse document frequency of a term, which so many of the rows hold."""
    return math.log(1 + (rows - holding + 0.5) / (holding + 0.5)) ** 2
