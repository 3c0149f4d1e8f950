"""Test data for a size: turns of themes of very different sizes, made in blocks so that they need not fit in RAM."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from recall_corpus import TEXTS, Array, texts

BLOCK_ROWS = 10_000
SESSION_ROWS = 20
TOP = 10
# Half of the rows of a theme have one of these passages as their main part, as its texts are on fewer topics.
FAVOURITES = 60
YEAR_S = 365 * 86_400


@dataclass(frozen=True)
class Block:
    """Consecutive rows in order of time: their vectors in half precision, and the numbers of their themes and texts."""

    first: int
    vectors: Array
    themes: Array
    texts: Array


@dataclass(frozen=True)
class ScaleCorpus:
    """`rows` turns of a year in `themes` themes, of which the n-th largest has a share of 1/n.

    A vector is a point between two passages of real texts, shifted by a third of the difference of two others, and
    repeated `times` times. The same arguments give the same data.
    """

    rows: int
    themes: int
    passages: Array
    questions: Array
    times: int = 1

    @property
    def dimensions(self) -> int:
        return self.passages.shape[1] * self.times

    @cached_property
    def text_pool(self) -> list[str]:
        return texts(TEXTS, random.Random(2))

    @cached_property
    def _bounds(self) -> Array:
        shares = 1 / np.arange(1, self.themes + 1)
        return np.cumsum(shares) / shares.sum()

    @cached_property
    def _favourites(self) -> Array:
        return np.random.default_rng(13).integers(0, len(self.passages), (self.themes, FAVOURITES))

    def block(self, first: int) -> Block:
        """The rows from `first`, a multiple of BLOCK_ROWS, on."""
        chance = np.random.default_rng([17, first])
        count = min(BLOCK_ROWS, self.rows - first)
        themes = np.minimum(np.searchsorted(self._bounds, chance.random(count)), self.themes - 1)
        picks = chance.integers(0, len(self.passages), (4, count))
        own = self._favourites[themes, chance.integers(0, FAVOURITES, count)]
        picks[0] = np.where(chance.random(count) < 0.5, own, picks[0])
        share = chance.uniform(0.5, 0.9, (count, 1)).astype(np.float32)
        a, b, c, d = self.passages[picks]
        mixed = share * a + (1 - share) * b + np.float32(0.33) * (c - d)
        mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
        return Block(first, self._widened(mixed), themes, chance.integers(0, TEXTS, count))

    def blocks(self) -> Iterator[Block]:
        """All rows."""
        return (self.block(first) for first in range(0, self.rows, BLOCK_ROWS))

    def widened_questions(self) -> Array:
        """The vectors of the questions in the length of the rows."""
        return self._widened(self.questions)

    def _widened(self, part: Array) -> Array:
        return np.tile(part / np.float32(np.sqrt(self.times)), (1, self.times)).astype(np.float16)

    def tenth_best(self, themes: Sequence[int | None]) -> dict[int | None, Array]:
        """For each theme, None being all: the cosine of the tenth best row for each question, by comparing all rows."""
        asked = self.widened_questions().astype(np.float32).T
        best = {theme: np.full((TOP, asked.shape[1]), -2.0, np.float32) for theme in themes}
        for block in self.blocks():
            cosines = block.vectors.astype(np.float32) @ asked
            for theme in themes:
                ours = cosines if theme is None else cosines[block.themes == theme]
                best[theme] = np.sort(np.concatenate([best[theme], ours]), axis=0)[-TOP:]
        return {theme: cosines[0] for theme, cosines in best.items()}


def theme_name(number: int) -> str:
    """The name of the n-th largest theme, counted from 0."""
    return f"theme-{number + 1}"
