"""How large a request to the embedder may be, learnt from how long the last ones took."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median
from typing import NamedTuple

REQUEST_S = 0.5
CHARS_FIRST, CHARS_MAX = 2_000, 1_000_000
REQUESTS_KEPT = 8
RATIO_MIN = 1.25
UNANSWERED_FACTOR = 4


class Sent(NamedTuple):
    """A request: its characters and texts, and the characters of all requests that ran when it was sent, with it."""

    chars: int
    texts: int
    running: int


class RequestSize:
    """The characters at which the next request is full: its last text may exceed them. Not safe for threads.

    A request takes a fixed time, such as the latency of a far endpoint, and a time for its texts. It may take
    `REQUEST_S` seconds, or four times the fixed time where that is more, so that at most half of the time is lost to
    the fixed time. Above `REQUEST_S` it may take no more than `longest_s`. The size doubles when a full request takes
    less than half of that, and halves when one takes longer.

    The fixed time is estimated from the last `REQUESTS_KEPT` requests, as the Theil-Sen estimator does: the line
    through each two of different sizes has a time for no text; the median of these is the estimate. So one slow
    request, such as the first one to a model that has to be loaded, changes little. The sizes include the requests that
    ran already, for which an embedder that works on one at a time lets the new one wait. When all sizes were alike, the
    next one is another.
    """

    def __init__(self, longest_s: float) -> None:
        self.chars = CHARS_FIRST
        self._longest_s = longest_s
        self._times: deque[tuple[int, float]] = deque(maxlen=REQUESTS_KEPT)

    def answered(self, sent: Sent, seconds: float) -> None:
        """Note a request that was answered."""
        self._times.append((sent.running, seconds))
        fixed_s = self.fixed_s
        limit_s = max(REQUEST_S, min(4 * (fixed_s or 0.0), self._longest_s))
        # One that is much larger was sent before the size was reduced.
        fits = sent.chars < 2 * self.chars
        if seconds < limit_s / 2:
            if sent.chars >= self.chars:
                self.chars = min(CHARS_MAX, 2 * sent.chars)
        elif fixed_s is None and len(self._times) == REQUESTS_KEPT and seconds < self._longest_s / 2:
            if sent.texts == 1:
                self.chars = min(CHARS_MAX, 2 * sent.chars)
            elif fits:
                self.chars = max(1, sent.chars // 4)
        elif seconds > limit_s and fits:
            self.chars = max(1, self.chars // 2)

    def unanswered(self, sent: Sent, seconds: float, *, timed_out: bool) -> None:
        """Note a request that failed after so many seconds. One that timed out may have been too large by far."""
        if timed_out:
            self._times.append((sent.running, UNANSWERED_FACTOR * seconds))
            self.chars = 1
        elif seconds > REQUEST_S:
            self.chars = max(1, self.chars // 2)

    @property
    def fixed_s(self) -> float | None:
        """Seconds that a request takes for no text, at most those that it usually takes; None while not known."""
        found = [
            small_s - small * (large_s - small_s) / (large - small)
            for (small, small_s), (large, large_s) in combinations(sorted(self._times), 2)
            if large > RATIO_MIN * small
        ]
        if not found:
            return None
        return max(0.0, min(median(found), median(seconds for _, seconds in self._times)))
