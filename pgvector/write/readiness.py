"""Prepares what a batch needs: a database with its schema, an embedder that fits it, and the person key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..model import Event
from ..outbox.dead_letters import DeadLetters
from ..store.connection.database import Database


@dataclass
class Refiling:
    """Files dead letters again once the person or room that they belong to is known.

    Those with `reason` and a theme in `known()` are given to `accept`, every `interval_s` seconds.
    """

    letters: DeadLetters
    interval_s: float
    reason: str
    known: Callable[[], frozenset[str]]
    accept: Callable[[Event], bool]
    _next_at: float = 0.0

    def due(self) -> bool:
        """Whether to call `run` now. For the writer thread."""
        if not self.known() or time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + self.interval_s
        return True

    def run(self) -> None:
        """Accept the dead letters of known themes, and delete them. Other processes may do the same."""
        themes = self.known()
        for letter in self.letters:
            event = letter.event if letter.reason == self.reason else None
            if event is not None and event.theme in themes and self.accept(event):
                # The writer may have made it a dead letter again already, for another reason.
                now = self.letters.read(letter.id)
                if now is not None and now.reason == self.reason:
                    self.letters.forget(letter.id)


class Readiness:
    """Prepares the database for the writer thread. `wait` and `reached` are safe for any thread.

    `agree` settles the person key: it is called with `Database.claim_person_key`. `in_background` runs a call that the
    writer does not wait for.
    """

    def __init__(
        self,
        database: Database,
        compatibility: EmbedderCompatibility,
        refiling: Refiling,
        agree: Callable[[Callable[[str], str]], None],
        in_background: Callable[[Callable[[], None]], object],
    ) -> None:
        self._database, self._compatibility, self._refiling = database, compatibility, refiling
        self._agree, self._in_background = agree, in_background
        self._reached = threading.Event()

    @property
    def reached(self) -> bool:
        """Whether the database has been usable once."""
        return self._reached.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Wait until the database is usable; False when it is not within `timeout_s` seconds."""
        return self._reached.wait(timeout_s)

    def embedder(self, *, verify: bool) -> Embedder | None:
        """The embedder whose vectors fit the database; None when there is none now.

        The first time, and with `verify`, it connects, creates or verifies the schema, and matches the embedder. What
        is due in the background is started. Raises Unavailable or SchemaNotApplied.
        """
        fit = self._compatibility
        if verify or not self.reached:
            fit.match(self._database.prepare(fit.wanted_dimensions()).dimensions)
            self._agree(self._database.claim_person_key)
            self._reached.set()
        elif fit.undecided and self._database.state is not None:
            fit.match(self._database.state.dimensions)
        if fit.calibration_due():
            self._in_background(fit.calibrate)
        if self._refiling.due():
            self._in_background(self._refiling.run)
        embedder = fit.usable()
        return None if isinstance(embedder, str) else embedder
