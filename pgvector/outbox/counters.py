"""Counters of the events of this process, and whether its writer works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from ..model import Counters, now

log = logging.getLogger("hermes.pgvector")


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the writer works, and if it does not, since when and why. `problem` is empty while it works."""

    last_success: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""


class WriterStatus:
    """Counters, without `pending`, and health of a writer. Safe for any thread.

    Call `notify` after a change that others wait for.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.counts = Counters()
        self.health = Health()

    def add(self, **numbers: int) -> None:
        """Add to counters by name."""
        with self._changed:
            sums = {name: getattr(self.counts, name) + number for name, number in numbers.items()}
            self.counts = replace(self.counts, **sums)

    def notify(self) -> None:
        """Wake the threads in `wait_until`."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()` is true, for at most `timeout_s` seconds; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(done, timeout_s)

    def succeeded(self) -> None:
        """Note a round of the writer without an error."""
        if self.health.problem:
            log.warning("events are stored again")
        self.health = Health(last_success=now())

    def failed(self, problem: str) -> None:
        """Note a failed round; the first of several is logged."""
        if not self.health.problem:
            log.warning("events stay in the spool for now: %s", problem)
        self.health = replace(self.health, failing_since=self.health.failing_since or now(), problem=problem)
