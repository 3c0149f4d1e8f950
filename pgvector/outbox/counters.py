"""What became of the events of this process, and whether the writer is well."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ..model import Counters, now

log = logging.getLogger("hermes.pgvector")


@dataclass(frozen=True, slots=True)
class Health:
    """What an operator asks first: is it working, and if not, since when and why."""

    last_success: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""


class Tally:
    """Counters and health. Safe for any thread; who counts something that others wait for also calls `notify`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._counts = Counters()
        self._health = Health()

    @property
    def counts(self) -> Counters:
        """The counters, without `pending`."""
        return self._counts

    @property
    def health(self) -> Health:
        """The health of the writer."""
        return self._health

    def add(self, **numbers: int) -> None:
        """Add to counters by name."""
        with self._changed:
            grown = {name: getattr(self._counts, name) + number for name, number in numbers.items()}
            self._counts = replace(self._counts, **grown)

    def notify(self) -> None:
        """Have everybody look who waits for a change."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()` holds, for at most `timeout_s` seconds; returns whether it does."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not done():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def succeeded(self) -> None:
        """A round of the writer went well."""
        if self._health.problem:
            log.warning("memory is stored again")
        self._health = Health(last_success=now())

    def failed(self, problem: str) -> None:
        """A round failed; the first of a row is said in the log."""
        if not self._health.problem:
            log.warning("memory is kept in the spool for now: %s", problem)
        self._health = replace(self._health, failing_since=self._health.failing_since or now(), problem=problem)
