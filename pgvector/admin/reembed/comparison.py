"""Compares recalls of both columns of vectors on a sample of rows."""

from __future__ import annotations

from typing import NamedTuple

from ...embedding.protocol import Embedder
from ...errors import EmbedderMismatch
from ...settings import Settings
from ...store import second_column
from ...store.schema.preflight import Connection

SAMPLE_ROWS = 20
NEAREST = 10
QUERY_CHARS = 200
# A model that finds fewer rows by their own words is not the one that made these vectors.
FOUND_SHARE_MIN = 0.5


class Comparison(NamedTuple):
    """Of `sampled` rows, `found` are among the nearest to the beginning of their own text, by the new vectors.

    `same_pct` is how many of the nearest rows of a row are the same by the old and by the new vectors.
    """

    sampled: int
    found: int
    same_pct: float

    @property
    def holds(self) -> bool:
        return self.found >= FOUND_SHARE_MIN * self.sampled


def compare(connection: Connection, embedder: Embedder, settings: Settings) -> Comparison:
    """Recall the sampled rows by both columns. Raises the errors of the embedder."""
    found = sampled = 0
    same: list[float] = []
    for row in second_column.sample(connection, SAMPLE_ROWS):
        try:
            vector = embedder.embed_query(row.content[:QUERY_CHARS], settings.embed_timeout_s)
        except (EmbedderMismatch, ValueError):
            continue
        sampled += 1
        found += second_column.is_near(connection, row, vector, NEAREST)
        old, new = (second_column.neighbours(connection, row, NEAREST, second=second) for second in (False, True))
        if old:
            same.append(len(old & new) / len(old))
    return Comparison(sampled, found, round(100 * sum(same) / len(same), 1) if same else 100.0)
