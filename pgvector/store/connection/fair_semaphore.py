"""A semaphore that admits its callers in the order of their arrival. Those of the standard library keep no order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from ...errors import DatabaseUnavailable


class FairSemaphore:
    """Admits `most` callers at a time; the others wait in a line, and some go to its head. Safe for any thread."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._free = most
        # A lock for each caller that waits; it is released when the caller is admitted.
        self._line: deque[threading.Lock] = deque()

    @contextmanager
    def admitted(self, timeout_s: float, *, first: bool = False) -> Iterator[None]:
        """Wait for admission, which ends with the block. With `first` nobody in the line is admitted before.

        Raises DatabaseUnavailable after `timeout_s` seconds.
        """
        self._enter(timeout_s, first=first)
        try:
            yield
        finally:
            self._leave()

    def _enter(self, timeout_s: float, *, first: bool) -> None:
        turn = threading.Lock()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn.acquire()
            if first:
                self._line.appendleft(turn)
            else:
                self._line.append(turn)
        try:
            turn.acquire(timeout=max(0.0, timeout_s))
        except BaseException:  # for example, an interrupt by the keyboard
            if not self._gave_up(turn):
                self._leave()
            raise
        if self._gave_up(turn):
            raise DatabaseUnavailable(f"all connections were in use for {timeout_s:.1f} s; raise pool_max")

    def _gave_up(self, turn: threading.Lock) -> bool:
        """Leave the line; False when the caller is admitted already."""
        with self._lock:
            waits = turn in self._line
            if waits:
                self._line.remove(turn)
            return waits

    def _leave(self) -> None:
        """Admit the first in the line."""
        with self._lock:
            if self._line:
                self._line.popleft().release()
            else:
                self._free += 1
