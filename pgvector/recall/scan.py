"""Rows as arrays: a scope that was read whole, with what each leg finds in it, and who stands beside whom. Pure.

Words are scored by BM25 (Robertson and Zaragoza 2009) with term frequency taken as 1, the terms ORed and their inverse
document frequencies squared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from .fusion import Line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Key: TypeAlias = tuple[str, int]
# The number of the transaction that wrote a row, and the time of the row.
Version: TypeAlias = tuple[int, float]

# Rows of a theme: its name and, in columns, a big-endian number for each row. Of a scope: id, session, time, cosine,
# how many terms, as bits which of the question's terms, the first BITS and those beyond, and version.
Columns: TypeAlias = tuple[str, bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]
# Of candidates and their neighbours: id, session, time, cosine, and the id of the row before it in its session, or its
# own where there is none.
Family: TypeAlias = tuple[str, bytes, bytes, bytes, bytes, bytes]
# A bigint of so many bits stays positive.
BITS = 60

# BM25 as measured best on conversations: short documents want little length normalisation, and a word counts as rare
# twice, in the row and in the question.
BM25_K1, BM25_B, IDF_POWER = 0.9, 0.4, 2


@dataclass(frozen=True)
class Scan:
    """The rows of a scope as a question sees them; a place of each sequence is a row.

    The rows of a session stand one behind the other; `sessions` has a number for each session of each theme. `cosines`
    are those to the question, NaN where there is no vector; `lengths` is how many different terms a row has, and `held`
    (rows × terms) which of the question's; `words` are those from which the terms were made. Of rows that are equally
    good the ids decide. `versions` are the numbers of the transactions that wrote the rows, 0 where none is known, and
    `times` are in seconds.
    """

    keys: Sequence[Key]
    ids: NDArray[np.int64]
    sessions: NDArray[np.int64]
    cosines: NDArray[np.float64]
    lengths: NDArray[np.int32]
    held: NDArray[np.bool_]
    words: Sequence[str]
    versions: NDArray[np.uint32]
    times: NDArray[np.float64]

    @cached_property
    def places(self) -> dict[Key, int]:
        """The place of each row."""
        return {key: place for place, key in enumerate(self.keys)}

    def version(self, key: Key) -> Version | None:
        """The version of this row, which no other state of it has; None if there is no such row or none is known.

        The time is part of it because a server that was restored gives ids and numbers of transactions once more.
        """
        place = self.places.get(key)
        if place is None or not self.versions[place]:
            return None
        return int(self.versions[place]), float(self.times[place])

    def near(self, limit: int) -> dict[Key, float]:
        """The `limit` rows nearest to the question with their cosines, the nearest first."""
        import numpy as np  # at the first recall: a host loads this module at its start

        best = np.lexsort((self.ids, -self.cosines))[: min(limit, np.count_nonzero(~np.isnan(self.cosines)))]
        return {self.keys[row]: cosine for row, cosine in zip(best.tolist(), self.cosines[best].tolist(), strict=True)}

    def worded(self, limit: int) -> dict[Key, dict[str, float]]:
        """The `limit` best rows by the words of the question, best first, with what each word adds to their score."""
        rows, worths, words = self._worded(limit)
        return {
            self.keys[row]: {word: share for word, share in zip(words, worth, strict=True) if share}
            for row, worth in zip(rows.tolist(), worths.tolist(), strict=True)
        }

    def line(self, near: Mapping[Key, float], limit: int) -> Line[Key]:
        """What the near leg found with its cosines, the `limit` best rows by their words, and the neighbours of both.

        A key that is not among the rows, because its row came after they were read, is left out.
        """
        import numpy as np

        nearest = {self.places[key]: cosine for key, cosine in near.items() if key in self.places}
        best, worths, words = self._worded(limit)
        found = np.zeros(len(self.keys), dtype=bool)
        found[[*nearest, *best.tolist()]] = True
        # Whether a row stands behind another one of its session.
        follows = np.zeros(len(self.keys), dtype=bool)
        follows[1:] = self.sessions[1:] == self.sessions[:-1]
        family = found.copy()
        family[:-1] |= (found & follows)[1:]
        family[1:] |= found[:-1] & follows[1:]
        rows = np.flatnonzero(family)
        # A part of a long text may be nearer than the row, whose vector stands for its beginning.
        similarities = self.cosines.copy()
        similarities[[*nearest]] = [*nearest.values()]
        worth = np.zeros((len(rows), len(words)))
        worth[np.searchsorted(rows, best)] = worths
        keys = [self.keys[row] for row in rows.tolist()]
        return Line(keys, _positions(follows)[rows], similarities[rows], worth, words)

    def _worded(self, limit: int) -> tuple[NDArray[np.int64], NDArray[np.float64], list[str]]:
        """The places of the `limit` best rows by their words, best first; what each word adds to a row; the words."""
        import numpy as np

        columns = {word: column for column, word in enumerate(dict.fromkeys(self.words))}
        rows = np.flatnonzero(self.held.any(axis=1))
        holding = self.held.sum(axis=0)
        weights = np.log(1 + (len(self.keys) - holding + 0.5) / (holding + 0.5)) ** IDF_POWER
        lengths = self.lengths[rows]
        mean = lengths.sum() / max(1, len(rows))
        brevity = (BM25_K1 + 1) / (1 + BM25_K1 * (1 - BM25_B + BM25_B * lengths / mean))
        # Not as a product of matrices, which would add the same terms in another order in another place.
        scores = brevity * (self.held[rows] * weights).sum(axis=1)
        order = np.lexsort((self.ids[rows], -scores))[:limit]
        best = rows[order]
        # Several terms can come from one word.
        of_word = np.zeros((len(weights), len(columns)))
        of_word[range(len(weights)), [columns[word] for word in self.words]] = weights
        return best, brevity[order, np.newaxis] * (self.held[best] @ of_word), list(columns)


def scanned(themes: Sequence[Columns], words: Sequence[str]) -> Scan:
    """The rows of these themes, those of a session in their order; `words` are those of the question's terms."""
    import numpy as np

    types = "i8", "i8", "f8", "f8", "i4", "i8", "i8", "u4"
    keys, (ids, sessions, times, cosines, lengths, low, high, versions) = _rows(themes, types)
    held = np.hstack([_bits(low, min(len(words), BITS)), _bits(high, max(0, len(words) - BITS))])
    return Scan(keys, ids, sessions, cosines, lengths, held, words, versions, times)


def related(themes: Sequence[Family], near: Mapping[Key, float], words: Mapping[Key, Mapping[str, float]]) -> Line[Key]:
    """The rows of these themes in a line, with the cosines of the near leg and what the words of a row are worth."""
    import numpy as np

    keys, (ids, sessions, _, cosines, previous) = _rows(themes, ("i8", "i8", "f8", "f8", "i8"))
    follows = np.zeros(len(keys), dtype=bool)
    follows[1:] = (sessions[1:] == sessions[:-1]) & (previous[1:] == ids[:-1])
    held = dict.fromkeys(word for of_row in words.values() for word in of_row)
    columns = {word: column for column, word in enumerate(held)}
    worths = np.zeros((len(keys), len(columns)))
    for place, key in enumerate(keys):
        for word, worth in words.get(key, {}).items():
            worths[place, columns[word]] = worth
    # A part of a long text may be nearer than the row, whose vector stands for its beginning.
    similarities = np.array([near.get(key, cosine) for key, cosine in zip(keys, cosines.tolist(), strict=True)])
    return Line(keys, _positions(follows), similarities, worths, list(columns))


def _positions(follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The positions in a line of rows of which is known whether each stands behind the one before in its session."""
    import numpy as np

    return np.arange(len(follows)) + np.cumsum(~follows)


def _rows(themes: Sequence[tuple[Any, ...]], types: Sequence[str]) -> tuple[list[Key], list[NDArray[Any]]]:
    """The keys of the rows, those of a session one behind the other, and their numbers in the same order."""
    import numpy as np

    names, *columns = zip(*themes, strict=True) if themes else ((),) * (len(types) + 1)
    numbers = [np.frombuffer(b"".join(column), f">{type}") for column, type in zip(columns, types, strict=True)]
    ids, sessions, times = numbers[:3]
    order = np.lexsort((ids, times, sessions))
    whose = [name for name, column in zip(names, columns[0], strict=True) for _ in range(len(column) // ids.itemsize)]
    keys = list(zip(map(whose.__getitem__, order.tolist()), ids[order].tolist(), strict=True))
    return keys, [column[order].astype(column.dtype.newbyteorder("=")) for column in numbers]


def _bits(numbers: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    """The first bits of each number, the lowest first."""
    import numpy as np

    return (numbers[:, np.newaxis] >> np.arange(count) & 1).astype(bool)
