"""A semaphore that serves its callers in the order in which they came."""

from __future__ import annotations

import threading
import time
from collections import deque


class Turns:
    """Lets `count` callers in at a time. Safe for any thread.

    A lock of `threading` may be taken again and again by the thread that has just released it, while another one waits
    for seconds.
    """

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[threading.Lock] = deque()

    def take(self, deadline: float) -> bool:
        """Wait for a turn; False if there is none before `deadline`, a time of `time.monotonic`."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append(mine)
        if mine.acquire(timeout=max(0.0, deadline - time.monotonic())):
            return True
        with self._lock:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return False
        # It was given between the time-out and the removal.
        return True

    def give_back(self) -> None:
        """End a turn, which the longest waiting caller takes."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
