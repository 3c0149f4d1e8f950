"""The writer's work in the foreground: events filed by hand and those of dead processes, stored step by step."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from ..background import BackgroundExecutor
from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..errors import Unavailable
from ..mirror.home import Home
from ..model import Counters, Event
from ..outbox.counters import WriterStatus
from ..outbox.dead_letters import DeadLetters
from ..outbox.spool import Spool
from ..settings import Settings
from ..store.connection.database import Database
from ..write.batches import BatchProcessor

RETRY_S = 0.5
EMBED_THREADS = 2


class Filing(AbstractContextManager["Filing"]):
    """A spool of this command's process, and what stores it. For one thread.

    What it cannot store stays in the spool, where the next process of the home finds it. Raises SettingsError when the
    home has no database.
    """

    def __init__(self, settings: Settings, home: Home) -> None:
        self._settings = settings
        self._database = Database(settings, home.path)
        self._fitting = EmbedderCompatibility(settings, home.state, self._database)
        # Never the one in memory: what is filed by hand was on disk before.
        self._spool = Spool(
            home.spool,
            bytes_max=settings.spool_max_mb << 20,
            window_max=settings.write_queue_maxsize,
            fsync=settings.spool_fsync,
        )
        self._status = WriterStatus()
        self._batches = BatchProcessor(
            self._spool,
            home.spool,
            DeadLetters(home.state, bytes_max=settings.spool_max_mb << 20),
            self._database,
            settings,
            BackgroundExecutor("hermes-pgvector-embed", EMBED_THREADS),
            self._status,
            rename=home.person_key.filed,
        )

    def __exit__(self, *_: object) -> None:
        self._batches.stop()
        self._spool.close()
        self._database.close()
        self._fitting.close()

    @property
    def counters(self) -> Counters:
        """What became of the events so far, without those that are pending."""
        return self._status.counts

    def file(self, event: Event) -> bool:
        """Make the event durable; False when the spool refuses it."""
        filed = self._spool.append(event)
        self._status.add(offered=1, accepted=int(filed), refused=int(not filed))
        return filed

    def store(self, wait_s: float) -> str:
        """Store what was filed and what dead processes left, for about `wait_s` seconds; why not all, or nothing.

        While a service is away it is tried again. Raises SchemaNotApplied.
        """
        deadline = time.monotonic() + wait_s
        problem = f"{wait_s:g} s were not enough; run it again to go on"
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
            self._fitting.match(self._database.prepare(self._fitting.wanted_dimensions()).dimensions)
        embedder = self._fitting.usable()
        return None if isinstance(embedder, str) else embedder
