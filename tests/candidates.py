"""Candidates given one by one, and as the arrays that fusion takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hermes_memory_pgvector.recall.fusion import Candidates


@dataclass(frozen=True)
class Candidate:
    """A row that a search found, or a neighbour of one; `previous` is the row before it in its session."""

    key: Any
    similarity: float | None
    words: Mapping[str, float] = field(default_factory=dict)
    previous: Any = None
    length: int = 1


def as_arrays(candidates: Iterable[Candidate], reachable: float = 0.0) -> Candidates:
    """The candidates as they stand in their sessions."""
    left = {candidate.key: candidate for candidate in candidates}
    after = {candidate.previous: candidate.key for candidate in left.values()}
    rows: list[Candidate] = []
    positions: list[int] = []
    for start in [key for key, candidate in left.items() if candidate.previous not in left]:
        # A gap between two sessions.
        position = positions[-1] + 2 if positions else 0
        at: Any = start
        while at in left:
            rows.append(left.pop(at))
            positions.append(position)
            at, position = after.get(at), position + 1
    words = sorted({word for row in rows for word in row.words})
    worths = np.array([[row.words.get(word, 0.0) for word in words] for row in rows]).reshape(len(rows), len(words))
    similarities = np.array([row.similarity for row in rows], dtype=float)
    places = np.array(positions, dtype=np.int64)
    lengths = np.array([row.length for row in rows], dtype=np.int32)
    return Candidates([row.key for row in rows], places, similarities, worths, words, lengths, reachable)
