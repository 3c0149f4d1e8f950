"""Candidates as arrays: those of a small scope that was read whole, and those of two searches with their neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from ..store.retrieval import Key, RelatedRows, ScannedRows
from .fusion import Candidates
from .word_search import WordMatches, bm25

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rows = TypeVar("Rows", ScannedRows, RelatedRows)


@dataclass(frozen=True, slots=True)
class Scan:
    """A scope that was read whole: both searches and the neighbours are computed from its rows, so they are exact.

    `rows` are in the order of their sessions; `words` are those of the columns of `held`.
    """

    rows: ScannedRows
    words: Sequence[str]

    @classmethod
    def of(cls, rows: ScannedRows, words: Sequence[str]) -> Scan:
        """The scan of these rows, which may be in any order."""
        return cls(_in_session_order(rows), words)

    def nearest(self, limit: int) -> dict[Key, float]:
        """The `limit` rows nearest to the question with their cosines, nearest first."""
        import numpy as np

        cosines = self.rows.cosines
        best = np.lexsort((self.rows.ids, -cosines))[: min(limit, np.count_nonzero(~np.isnan(cosines)))]
        keys = map(self.rows.keys.__getitem__, best.tolist())
        return dict(zip(keys, cosines[best].tolist(), strict=True))

    def word_matches(self, limit: int) -> WordMatches:
        """The `limit` best rows by the words of the question."""
        return bm25(self.rows, self.words, limit, total=len(self.rows.keys))

    def candidates(self, nearest: Mapping[Key, float], limit: int) -> Candidates[Key]:
        """The nearest rows with their cosines, the `limit` best by words, and the neighbours of both.

        A key of `nearest` that is not in the scan, because its row was stored later, is left out.
        """
        import numpy as np

        cosine_at = {place: nearest[key] for place, key in enumerate(self.rows.keys) if key in nearest}
        matches = self.word_matches(limit)
        found = np.zeros(len(self.rows.keys), dtype=bool)
        found[[*cosine_at, *matches.places.tolist()]] = True
        follows = np.zeros(len(self.rows.keys), dtype=bool)
        follows[1:] = self.rows.sessions[1:] == self.rows.sessions[:-1]
        with_neighbours = found.copy()
        with_neighbours[:-1] |= (found & follows)[1:]
        with_neighbours[1:] |= found[:-1] & follows[1:]
        places = np.flatnonzero(with_neighbours)
        # The chunk of a long text can be nearer than the vector of the row, which is that of its beginning.
        similarities = self.rows.cosines.copy()
        similarities[[*cosine_at]] = [*cosine_at.values()]
        scores = np.zeros((len(places), len(matches.words)))
        scores[np.searchsorted(places, matches.places)] = matches.scores
        keys = [self.rows.keys[place] for place in places.tolist()]
        return Candidates(keys, _positions(follows)[places], similarities[places], scores, matches.words)


def with_neighbours(
    related: RelatedRows, nearest: Mapping[Key, float], matches: Mapping[Key, Mapping[str, float]]
) -> Candidates[Key]:
    """What two searches found, with the neighbours: `nearest` has cosines, `matches` what each word adds to a row."""
    import numpy as np

    rows = _in_session_order(related)
    follows = np.zeros(len(rows.keys), dtype=bool)
    follows[1:] = (rows.sessions[1:] == rows.sessions[:-1]) & (rows.previous[1:] == rows.ids[:-1])
    columns = {word: column for column, word in enumerate(dict.fromkeys(w for row in matches.values() for w in row))}
    scores = np.zeros((len(rows.keys), len(columns)))
    for place, key in enumerate(rows.keys):
        for word, score in matches.get(key, {}).items():
            scores[place, columns[word]] = score
    similarities = np.array([nearest.get(key, own) for key, own in zip(rows.keys, rows.cosines.tolist(), strict=True)])
    return Candidates(rows.keys, _positions(follows), similarities, scores, list(columns))


def _positions(follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Numbers of rows, one apart where a row follows the one before it in a session, and more elsewhere."""
    import numpy as np

    return np.arange(len(follows)) + np.cumsum(~follows)


def _in_session_order(rows: Rows) -> Rows:
    """The rows of each session one after the other, in the order of their times."""
    import numpy as np

    order = np.lexsort((rows.ids, rows.times, rows.sessions))
    columns = {name: column[order] for name, column in rows._asdict().items() if name != "keys"}
    return rows._replace(keys=[rows.keys[place] for place in order.tolist()], **columns)
