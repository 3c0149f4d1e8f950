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
    """Counters and health of a writer. Safe for any thread; call `notify` after a change that others wait for."""

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
            sums = {name: getattr(self._counts, name) + number for name, number in numbers.items()}
            self._counts = replace(self._counts, **sums)

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
        if self._health.problem:
            log.warning("events are stored again")
        self._health = Health(last_success=now())

    def failed(self, problem: str) -> None:
        """Note a failed round; the first of several is logged."""
        if not self._health.problem:
            log.warning("events stay in the spool for now: %s", problem)
        self._health = replace(self._health, failing_since=self._health.failing_since or now(), problem=problem)
