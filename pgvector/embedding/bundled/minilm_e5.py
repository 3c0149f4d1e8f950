"""English texts by all-MiniLM-L6-v2, all others by multilingual-e5-small, in one vector space.

A linear map takes the vectors of multilingual-e5-small to those that all-MiniLM-L6-v2 gives to the same text. It was
fitted to English sentences, and holds for other languages because multilingual-e5-small gives a text and its
translation nearly the same vector. `scripts/evaluation/alignment.py` makes it.

The direction of the mean vector of all-MiniLM-L6-v2 is taken out of all vectors, because it says nothing about a text.
Passages that are not English get a part in this direction instead. It lowers their cosine with each question by the
same share: they are mapped, so they are near to more questions than they should be.
"""

from __future__ import annotations

import math
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .e5 import E5
from .minilm import MiniLM

# The cosine of a passage that is not English with a question is this share of what it would be in English.
_MAPPED_SHARE = 0.9
ALIGNMENT = Path(__file__).with_name("alignment.npz")


class MiniLME5:
    """Both models. multilingual-e5-small is loaded with the first text that is not English."""

    def __init__(self) -> None:
        """Load the English model. Raises ImportError, OSError or RuntimeError, as the other methods do."""
        self._minilm = MiniLM()
        self._e5: E5 | None = None
        self._lock = threading.Lock()
        with np.load(ALIGNMENT) as alignment:
            self._map = alignment["map"].astype(np.float32)
            self._passage_mean, self._query_mean = alignment["e5_passage_mean"], alignment["e5_query_mean"]
            self._common = unit(alignment["minilm_mean"])

    def passage(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a text to store."""
        english = self._english(text)
        if english is not None:
            return english
        mapped = self._without_common((self._other().passage(text) - self._passage_mean) @ self._map)
        return _MAPPED_SHARE * mapped + math.sqrt(1 - _MAPPED_SHARE**2) * self._common

    def query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a query."""
        english = self._english(text)
        if english is not None:
            return english
        return self._without_common((self._other().query(text) - self._query_mean) @ self._map)

    def _english(self, text: str) -> NDArray[np.float32] | None:
        """The unit vector of an English text; None when it is not English."""
        tokens = self._minilm.tokens(text)
        return self._without_common(self._minilm.vector(tokens)) if tokens.english else None

    def _without_common(self, vector: NDArray[np.float32]) -> NDArray[np.float32]:
        return unit(vector - (vector @ self._common) * self._common)

    def _other(self) -> E5:
        with self._lock:
            if self._e5 is None:
                self._e5 = E5()
            return self._e5


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The vector scaled to length 1."""
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)
