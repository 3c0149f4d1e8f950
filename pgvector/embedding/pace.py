"""A running estimate of what embedding one text costs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import EmbedderUnavailable

_WEIGHT_OF_NEWEST = 0.2


class Pace:
    """An exponentially weighted mean of seconds per text. Safe to use from several threads."""

    def __init__(self, seconds_per_text: float) -> None:
        self._lock = threading.Lock()
        self._seconds = seconds_per_text

    @property
    def seconds_per_text(self) -> float:
        return self._seconds

    @contextmanager
    def measured(self, count: int) -> Iterator[None]:
        """Learn from a call that embeds `count` texts. A call that ran out of time teaches only that texts are slow."""
        started = time.monotonic()
        try:
            yield
        except EmbedderUnavailable:
            each = (time.monotonic() - started) / count
            if each > self._seconds:
                self.learn(each)
            raise
        self.learn((time.monotonic() - started) / count)

    def learn(self, seconds: float) -> None:
        """Take one more observation, in seconds per text, into the estimate."""
        with self._lock:
            self._seconds += _WEIGHT_OF_NEWEST * (seconds - self._seconds)
