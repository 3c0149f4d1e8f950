"""Circuit breaker around an embedder that is down or misconfigured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import EmbedderUnavailable, Refused
from ..model import Vector
from .protocol import Embedder
from .vectors import TextRefused


class Breaker:
    """A circuit breaker: fails at once while the inner embedder is known not to work. Safe for any thread.

    While it is closed, it passes every call on. `failures_max` consecutive calls that end in EmbedderUnavailable open
    it for `first_s` seconds; one refused call opens it for `refused_s`, because an operator has to act. After that time
    it passes one call on as a trial. If the trial succeeds, the breaker closes; if not, it stays open twice as long,
    up to `longest_s`. Queries and passages count together. While it is open, every call raises EmbedderUnavailable with
    the cause and the seconds until the next trial.
    """

    def __init__(
        self,
        inner: Embedder,
        *,
        failures_max: int = 3,
        first_s: float = 1.0,
        longest_s: float = 30.0,
        refused_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._failures_max, self._first_s = failures_max, first_s
        self._longest_s, self._refused_s = longest_s, refused_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._wait_s = 0.0
        self._open_until: float | None = None
        self._trial_running = False
        self._cause = ""

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def dimensions(self) -> int | None:
        return self._inner.dimensions

    @property
    def seconds_per_text(self) -> float:
        return self._inner.seconds_per_text

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        """The answer of the inner embedder. Raises EmbedderUnavailable at once while the breaker is open."""
        with self._guarded():
            return self._inner.embed_passages(texts, timeout_s)

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        """The answer of the inner embedder. Raises EmbedderUnavailable at once while the breaker is open."""
        with self._guarded():
            return self._inner.embed_query(text, timeout_s)

    def close(self) -> None:
        """Close the inner embedder; safe to call twice."""
        self._inner.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        trial = self._admit()
        try:
            yield
        except TextRefused:
            self._succeeded()
            raise
        except EmbedderUnavailable as error:
            self._failed(str(error), trial)
            raise
        except Refused as error:
            with self._lock:
                self._open(str(error), self._refused_s)
            raise
        else:
            self._succeeded()
        finally:
            if trial:
                with self._lock:
                    self._trial_running = False

    def _admit(self) -> bool:
        """Whether an admitted call is the trial. Raises EmbedderUnavailable if the call is not admitted."""
        with self._lock:
            if self._open_until is None:
                return False
            left = self._open_until - self._clock()
            if left > 0:
                raise EmbedderUnavailable(f"no request is sent for another {left:.1f} s after: {self._cause}")
            if self._trial_running:
                raise EmbedderUnavailable(f"no request is sent while a trial is running after: {self._cause}")
            self._trial_running = True
            return True

    def _succeeded(self) -> None:
        with self._lock:
            self._failures, self._wait_s, self._open_until = 0, 0.0, None

    def _failed(self, cause: str, trial: bool) -> None:
        with self._lock:
            self._failures += 1
            # Calls that began before it opened may fail later. Only the trial may extend the wait.
            if not trial and (self._open_until is not None or self._failures < self._failures_max):
                return
            self._open(cause, min(self._longest_s, self._wait_s * 2 or self._first_s))

    def _open(self, cause: str, wait_s: float) -> None:
        """Open for `wait_s` seconds from now. The caller holds the lock."""
        self._cause, self._wait_s = cause, wait_s
        self._open_until = self._clock() + wait_s
