"""The rows that the searches found and their neighbours, as the candidates of the fusion."""

from __future__ import annotations

from collections.abc import Mapping

from ..store.retrieval import Key, RelatedRows, ScannedRows
from .fusion import Candidates
from .word_search import WordMatches


def candidates(rows: ScannedRows | RelatedRows, nearest: Mapping[Key, float], matches: WordMatches) -> Candidates:
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
    places = {key: place for place, key in enumerate(matches.keys)}
    found = np.array([key in nearest or key in places for key in rows.keys], dtype=bool)[order]
    kept = found.copy()
    kept[:-1] |= (found & follows)[1:]
    kept[1:] |= found[:-1] & follows[1:]
    # Rows follow each other one apart in a session, and more elsewhere.
    positions = np.arange(len(order)) + np.cumsum(~follows)
    chosen = order[kept]
    keys = [rows.keys[place] for place in chosen.tolist()]
    cosines = rows.cosines[chosen].tolist()
    similarities = np.array([nearest.get(key, own) for key, own in zip(keys, cosines, strict=True)])
    # The row of zeros at the end is for the rows without a word.
    scores = np.vstack([matches.scores, np.zeros(len(matches.words))])[[places.get(key, -1) for key in keys]]
    return Candidates(keys, positions[kept], similarities, scores, matches.words)
