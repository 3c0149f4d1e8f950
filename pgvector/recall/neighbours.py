"""The neighbours of the rows that the searches found, and both as the candidates of the fusion."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ..store.retrieval import Key, RelatedRows, ScannedRows
from .fusion import Candidates
from .word_search import WordMatches


def family(rows: ScannedRows, keys: Collection[Key]) -> RelatedRows:
    """Some rows of a scope that was read whole, and those before and after each of them in its session."""
    import numpy as np

    order = np.lexsort((rows.ids, rows.times, rows.sessions))
    ids, sessions = rows.ids[order], rows.sessions[order]
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = sessions[1:] == sessions[:-1]
    previous = np.where(follows, np.roll(ids, 1), ids)
    found = np.array([key in keys for key in rows.keys], dtype=bool)[order]
    kept = found.copy()
    kept[:-1] |= (found & follows)[1:]
    kept[1:] |= found[:-1] & follows[1:]
    places = order[kept]
    return RelatedRows(
        [rows.keys[place] for place in places.tolist()],
        rows.ids[places],
        rows.sessions[places],
        rows.times[places],
        rows.cosines[places],
        previous[kept],
    )


def candidates(related: RelatedRows, nearest: Mapping[Key, float], matches: WordMatches) -> Candidates[Key]:
    """The rows that the searches found, and their neighbours; a row that is not in `related`, being gone, is left out.

    `nearest` has the cosines of the rows that the vector search found. That of a long text can be higher than the one
    in `related`, because it is that of the nearest of its chunks.
    """
    import numpy as np

    order = np.lexsort((related.ids, related.times, related.sessions))
    keys = [related.keys[place] for place in order.tolist()]
    ids, sessions, previous = related.ids[order], related.sessions[order], related.previous[order]
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = (sessions[1:] == sessions[:-1]) & (previous[1:] == ids[:-1])
    # Rows follow each other one apart in a session, and more elsewhere.
    positions = np.arange(len(order)) + np.cumsum(~follows)
    cosines = related.cosines[order].tolist()
    similarities = np.array([nearest.get(key, own) for key, own in zip(keys, cosines, strict=True)])
    # The row of zeros at the end is for the rows without a word.
    places = {key: place for place, key in enumerate(matches.keys)}
    scores = np.vstack([matches.scores, np.zeros(len(matches.words))])
    return Candidates(keys, positions, similarities, scores[[places.get(key, -1) for key in keys]], matches.words)
