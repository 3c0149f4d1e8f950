"""A bounded memory of what was found out lately."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """The `entries_max` values that were asked for last, none older than `age_s_max` seconds. Safe for any thread."""

    def __init__(self, entries_max: int, age_s_max: float = math.inf) -> None:
        self._entries_max, self._age_s_max = entries_max, age_s_max
        self._lock = threading.Lock()
        self._values: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value that was put there, None when it is forgotten."""
        with self._lock:
            at, value = self._values.get(key, (-math.inf, None))
            if time.monotonic() - at > self._age_s_max or value is None:
                return None
            self._values.move_to_end(key)
            return value

    def forget(self, key: K) -> None:
        """Remember no value for this key."""
        with self._lock:
            self._values.pop(key, None)

    def put(self, key: K, value: V) -> None:
        """Remember a value from now on, in the place of the one that was asked for longest ago."""
        with self._lock:
            self._values[key] = (time.monotonic(), value)
            self._values.move_to_end(key)
            if len(self._values) > self._entries_max:
                self._values.popitem(last=False)
