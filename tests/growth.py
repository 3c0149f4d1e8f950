"""How the time of a function grows with its text."""

from __future__ import annotations

import time
from collections.abc import Callable

FACTOR = 8


def spent(function: Callable[[str], object], text: str) -> float:
    """The seconds of this thread's time that it takes, the least of three."""
    times = []
    for _ in range(3):
        started = time.thread_time()
        function(text)
        times.append(time.thread_time() - started)
    return min(times)


def grows_linearly(function: Callable[[str], object], piece: str, times: int) -> bool:
    """Whether FACTOR times the text takes about FACTOR times as long, and not the square of that."""
    short, long = spent(function, piece * times), spent(function, piece * (FACTOR * times))
    return long < FACTOR**1.5 * max(short, 0.001)
