"""Circuit breaker around a service that is down or misconfigured, such as an embedder."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..errors import Condition, EmbedderLimited, EmbedderUnavailable, Refused
from ..model import Vector, now
from .protocol import Embedder
from .vectors import TextRefused

FAILURES_MAX = 3
OPEN_S_FIRST, OPEN_S_MAX = 0.5, 2.5
LIMITED_S_MAX, SPREAD = 60.0, 0.2
REFUSED_S = 5.0


class CircuitBreaker:
    """Fails at once while a service is known not to work. Safe for any thread.

    While it is closed, it admits every call. `FAILURES_MAX` consecutive calls that end in EmbedderUnavailable open it
    for `OPEN_S_FIRST` seconds; one refused call opens it for `REFUSED_S`, because an operator has to act. After that
    time it admits one call as a trial. If the trial succeeds, the breaker closes; if not, it stays open twice as long,
    up to `OPEN_S_MAX`. While it is open, `guarded` raises EmbedderUnavailable with the cause and the seconds until the
    next trial.

    A service that takes no more requests for now counts the refused ones, too, as a rule, so a fleet whose every
    process goes on trying could keep it that way. Where it names a time to wait, the breaker opens for that at once;
    where it does not, as for other failures, but for up to `LIMITED_S_MAX`, which bounds both. A random part of up to
    `SPREAD` has the processes of a fleet come back one after the other. EmbedderLimited is raised meanwhile.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._wait_s = 0.0
        self._open_until: float | None = None
        self._trial_running = False
        self._cause = ""
        self._limited = False
        self._condition = Condition()

    @property
    def condition(self) -> Condition:
        """Whether the last call that reached the service succeeded, else since when calls fail."""
        return self._condition

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Make a call in the block, if it is admitted, and note how it ends."""
        trial = self._admit()
        try:
            yield
        except TextRefused:
            self._succeeded()
            raise
        except EmbedderUnavailable as error:
            self._failed(error, trial)
            raise
        except Refused as error:
            with self._lock:
                self._note_failure(str(error))
                self._open(error, REFUSED_S)
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
                reason = f"no request is sent for another {left:.1f} s after: {self._cause}"
                raise EmbedderLimited(reason, left) if self._limited else EmbedderUnavailable(reason)
            if self._trial_running:
                raise EmbedderUnavailable(f"no request is sent while a trial is running after: {self._cause}")
            self._trial_running = True
            return True

    def _succeeded(self) -> None:
        with self._lock:
            self._failures, self._wait_s, self._open_until = 0, 0.0, None
            self._condition = Condition(works=True)

    def _failed(self, error: EmbedderUnavailable, trial: bool) -> None:
        most_s, told_s = (LIMITED_S_MAX, error.wait_s) if isinstance(error, EmbedderLimited) else (OPEN_S_MAX, 0.0)
        with self._lock:
            self._failures += 1
            self._note_failure(str(error))
            # Calls that began before it opened may fail later. Only the trial may extend the wait.
            if not trial and (self._open_until is not None or (self._failures < FAILURES_MAX and not told_s)):
                return
            self._open(error, min(most_s, max(told_s, self._wait_s * 2 or OPEN_S_FIRST)))

    def _note_failure(self, cause: str) -> None:
        """The caller holds the lock."""
        self._condition = Condition(cause, self._condition.since or now())

    def _open(self, error: Exception, wait_s: float) -> None:
        """Open for `wait_s` seconds from now. The caller holds the lock."""
        self._cause, self._wait_s = str(error), wait_s
        self._limited = isinstance(error, EmbedderLimited)
        spread = random.uniform(1.0, 1.0 + SPREAD) if self._limited else 1.0
        self._open_until = self._clock() + spread * wait_s


class Breaker(CircuitBreaker):
    """An embedder inside a circuit breaker. Queries and passages count together. Safe for any thread."""

    def __init__(self, inner: Embedder, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self._inner = inner

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def dimensions(self) -> int | None:
        return self._inner.dimensions

    def embed_passages(self, texts: Sequence[str], timeout_s: float) -> list[Vector]:
        with self.guarded():
            return self._inner.embed_passages(texts, timeout_s)

    def embed_query(self, text: str, timeout_s: float) -> Vector:
        with self.guarded():
            return self._inner.embed_query(text, timeout_s)

    def close(self) -> None:
        """Close the inner embedder; safe to call twice."""
        self._inner.close()
