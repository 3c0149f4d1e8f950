"""A running estimate of the seconds it takes to embed one text."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import EmbedderUnavailable

_WEIGHT_OF_NEWEST = 0.2


class Pace:
    """An exponentially weighted mean of seconds per text. Safe for any thread."""

    def __init__(self, seconds_per_text: float) -> None:
        self._lock = threading.Lock()
        self._seconds = seconds_per_text

    @property
    def seconds_per_text(self) -> float:
        return self._seconds

    @contextmanager
    def measured(self, count: int) -> Iterator[None]:
        """Measure a call that embeds `count` texts. A failed call can only raise the estimate, not lower it."""
        started = time.monotonic()
        try:
            yield
        except EmbedderUnavailable:
            each = (time.monotonic() - started) / count
            if each > self._seconds:
                self.observe(each)
            raise
        self.observe((time.monotonic() - started) / count)

    def observe(self, seconds: float) -> None:
        """Add one observation, in seconds per text, to the mean."""
        with self._lock:
            self._seconds += _WEIGHT_OF_NEWEST * (seconds - self._seconds)
