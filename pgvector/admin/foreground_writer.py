"""Stores events while a command waits: those that it files itself, and those in orphaned spools."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..errors import Unavailable
from ..mirror.home import Home
from ..model import Counters, Event
from ..outbox.dead_letters import DeadLetters
from ..outbox.spool import Spool
from ..session.person_key import PersonKey
from ..settings import Settings, person_key
from ..store.connection.database import Database
from ..write.batches import BatchProcessor

RETRY_S = 0.5


class ForegroundWriter(AbstractContextManager["ForegroundWriter"]):
    """A spool of this process and its batch processor. Not thread-safe.

    Events that cannot be stored stay in the spool for the next process of the home. Raises SettingsError when the home
    has no database.
    """

    def __init__(self, settings: Settings, home: Home) -> None:
        self._database = Database(settings, home.path)
        self._compatibility = EmbedderCompatibility(settings, home.state, self._database)
        # On disk only: an event that was on disk must not move to memory.
        self._spool = Spool(
            home.spool,
            bytes_max=settings.spool_max_mb << 20,
            window_max=settings.write_queue_maxsize,
            fsync=settings.spool_fsync,
        )
        letters = DeadLetters(home.state, bytes_max=settings.spool_max_mb << 20)
        key = PersonKey(home.state, person_key(home.path))
        self._batches = BatchProcessor(self._spool, letters, self._database, settings, key.renamed)

    def __exit__(self, *_: object) -> None:
        self._batches.stop()
        self._spool.close()
        self._database.close()
        self._compatibility.close()

    @property
    def counters(self) -> Counters:
        """What became of the events so far, without those that are pending."""
        return self._batches.status.counts

    def file(self, event: Event) -> bool:
        """Write an event to the spool; False when the spool refuses it."""
        return self._spool.append(event)

    def store(self, wait_s: float) -> str:
        """Store the events of this spool and of orphaned ones, for about `wait_s` seconds; why not all, or "".

        Retries while a service is unavailable. Raises SchemaNotApplied.
        """
        deadline = time.monotonic() + wait_s
        problem = f"{wait_s:g} s were not enough; run the command again to continue"
        while True:
            try:
                if not self._batches.step(self._ready()):
                    return ""
            except Unavailable as error:
                problem = str(error)
                time.sleep(max(0.0, min(RETRY_S, deadline - time.monotonic())))
            except OSError as error:
                return str(error)
            if time.monotonic() >= deadline:
                return problem

    def _ready(self) -> Embedder | None:
        if self._database.state is None:
            stored = self._database.prepare(self._compatibility.wanted_dimensions())
            self._compatibility.match(stored.dimensions)
        embedder = self._compatibility.usable()
        return None if isinstance(embedder, str) else embedder
