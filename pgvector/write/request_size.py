"""How large a request to the embedder may be, learnt from how long the last ones took."""

from __future__ import annotations

from collections import deque
from itertools import combinations
from statistics import median

REQUEST_S = 0.5
CHARS_FIRST, CHARS_MAX = 2_000, 1_000_000
REQUESTS_KEPT = 8
RATIO_MIN = 1.25
UNANSWERED_FACTOR = 4


class RequestSize:
    """The characters at which the next request is full: its last text may exceed them. Not safe for threads.

    A request takes a fixed time, such as the latency of a far endpoint, and a time for its texts. It may take
    `REQUEST_S` seconds, or four times the fixed time where that is more, so that at most half of the time is lost to
    the fixed time; but no more than `longest_s`. The size doubles when a full request takes less than half of that, and
    halves when one takes longer. Requests that were sent before such a change do not change it again.

    The fixed time is estimated from the last `REQUESTS_KEPT` requests, as the Theil-Sen estimator does: the line
    through each two of different sizes has a time for no text; the median of these is the estimate. So one slow
    request, such as the first one to a model that has to be loaded, changes little. When all were of one size, the next
    one gets another size.
    """

    def __init__(self, longest_s: float) -> None:
        self.chars = CHARS_FIRST
        self._longest_s = longest_s
        self._requests: deque[tuple[int, float]] = deque(maxlen=REQUESTS_KEPT)

    def answered(self, chars: int, seconds: float) -> None:
        """Note that a request of so many characters was answered after so many seconds."""
        self._requests.append((chars, seconds))
        fixed_s = self.fixed_s
        limit_s = max(REQUEST_S, min(4 * (fixed_s or 0.0), self._longest_s))
        if seconds < limit_s / 2:
            if chars >= self.chars:
                self.chars = min(CHARS_MAX, 2 * chars)
        elif fixed_s is None and len(self._requests) == REQUESTS_KEPT and seconds < self._longest_s / 2:
            # A single long text cannot be made smaller.
            self.chars = min(CHARS_MAX, 2 * chars) if chars >= 2 * self.chars else max(1, chars // 4)
        elif seconds > limit_s and chars < 2 * self.chars:
            self.chars = max(1, self.chars // 2)

    def unanswered(self, chars: int, seconds: float) -> None:
        """Note that a request was given up after so many seconds."""
        if seconds > REQUEST_S:
            self._requests.append((chars, UNANSWERED_FACTOR * seconds))
            self.chars = 1

    @property
    def fixed_s(self) -> float | None:
        """Seconds that a request takes for no text, at most those of the quickest; None while this is not known."""
        found = [
            small_s - small * (large_s - small_s) / (large - small)
            for (small, small_s), (large, large_s) in combinations(sorted(self._requests), 2)
            if large >= RATIO_MIN * small
        ]
        if not found:
            return None
        return max(0.0, min(median(found), *(seconds for _, seconds in self._requests)))
