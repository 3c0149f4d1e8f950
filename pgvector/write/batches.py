"""Batches on their way into rows: validated, embedded, written, acknowledged."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress

from cachetools import LRUCache

from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError
from ..model import Event, TurnTaken, Vector
from ..outbox.dead_letters import DeadLetters
from ..outbox.heartbeat import WriterStatus
from ..outbox.spool import Spool
from ..settings import Settings
from ..store.connection.database import Connection, Database
from ..store.passages import CONTEXT_CHARS_MAX, prepare
from ..store.upkeep import RELEASE_S_MAX
from . import refusals
from .batch import Batch, passages_of
from .embedding_queue import EmbeddingQueue
from .sources import Sources
from .validation import validate

log = logging.getLogger("hermes.pgvector")

BATCHES_MAX = 2
SESSIONS_MAX = 1000
UNEXPECTED_MAX = 5
HURRIED_WAIT_S_MAX = 0.2
LATE_MAX = 1000
LOOK_S = 0.05


class BatchProcessor:
    """Moves events from the spools into Postgres, in order, each once. For the writer thread alone.

    While one batch is written, the next one is embedded. A batch waits for its vectors for `embed_wait_s` seconds, or
    for HURRIED_WAIT_S_MAX when somebody waits for its rows. Then it is stored with those that came. The others are
    `late`, by model and text: the backfill stores them. Until the embedder has caught up, batches request no vectors.

    `rename` gives an event the final names of its theme and author, or raises BadEvent. `stored` is called with the
    events of each batch. `woken` is set when vectors have come, `unembedded` when rows were stored without a vector.
    """

    def __init__(
        self,
        spool: Spool,
        dead_letters: DeadLetters,
        database: Database,
        settings: Settings,
        rename: Callable[[Event], Event],
        stored: Callable[[Sequence[Event]], None] = lambda _: None,
    ) -> None:
        self.spool, self.dead_letters, self.database, self.settings = spool, dead_letters, database, settings
        self._rename, self._stored = rename, stored
        self.woken = threading.Event()
        self.queue = EmbeddingQueue(settings, self.woken.set)
        self.late: LRUCache[tuple[str, str], Future[Vector]] = LRUCache(LATE_MAX)
        self._behind = False
        self.status = WriterStatus(settings.stuck_after_s)
        self.sources = Sources(spool, settings)
        self.unembedded = False
        self._batches: deque[Batch] = deque()
        self._last_texts: LRUCache[tuple[str, str], str] = LRUCache(SESSIONS_MAX)

    def step(self, embedder: Embedder | None, hurried: Callable[[], bool]) -> bool:
        """Settle one batch; False when there is nothing more to do now. `hurried()` is whether somebody waits for it.

        Raises Unavailable or SchemaNotApplied when Postgres cannot take it now, OSError when the dead letters cannot be
        written. Call it again: nothing is lost or repeated.
        """
        self.sources.next_orphan()
        while len(self._batches) < BATCHES_MAX and (taken := self.sources.take()):
            source, records = taken
            self._batches.append(Batch(source, records, unprepared=deque(records)))
            self._prepare(self._batches[-1], embedder)
        if not self._batches:
            self.status.notify()
            return not self.sources.orphans_done
        batch = self._batches[0]
        if batch.unexpected >= UNEXPECTED_MAX:
            refusals.isolate(batch)
        batch.unexpected += 1
        if batch.timeline is None:
            batch.timeline = self.database.timeline.latest
        try:
            if batch.unprepared:
                self._prepare(batch, embedder)
            self._collect_vectors(batch, hurried)
            refusals.write(batch, self.database, self.settings)
            refusals.keep(batch, self.dead_letters)
        except (PgvectorError, OSError):
            batch.unexpected -= 1
            raise
        self._batches.popleft()
        self.unembedded |= batch.unembedded
        self.status.add(**batch.counts, adopted=0 if batch.source is self.spool else len(batch.records))
        batch.source.acknowledge(batch.records, batch.timeline, batch.erased)
        self.sources.note_timeline(self.database.timeline.latest)
        self._stored([record.event for record in batch.records if record.event])
        self.status.notify()
        return True

    def look(self, connection: Connection) -> None:
        """Look at what other processes, or a failover, have changed in the database."""
        self.database.held.look(connection)
        self.database.timeline.look(connection)
        self.sources.note_timeline(self.database.timeline.latest)

    def leave(self) -> None:
        """Tell the database that this process ends, if Postgres answers at once."""
        if self.database.held.announced:
            with suppress(PgvectorError), self.database.connection(RELEASE_S_MAX) as connection:
                self.database.held.leave(connection)

    def empty_caches(self) -> None:
        """Forget the texts of turns, and those whose vectors are late: the backfill gets these again."""
        self.late.clear()
        self._last_texts.clear()

    def stop(self) -> None:
        """Leave everything that is not acknowledged to the next run, in this process or another."""
        self._batches.clear()
        self.sources.give_back()

    def _prepare(self, batch: Batch, embedder: Embedder | None) -> None:
        """Validate the records and request the vectors of their passages."""
        while batch.unprepared:
            # It stays in place until it is done: an unexpected error is counted against it.
            record = batch.unprepared[0]
            try:
                if record.event is None:
                    raise BadEvent("the record in the spool is damaged")
                event = self._rename(validate(record.event, self.settings))
            except BadEvent as error:
                refusals.reject(batch, record, str(error))
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                refusals.reject(batch, record, f"its values are not of the expected kind ({type(error).__name__})")
            else:
                batch.prepared.append(prepare(event, self._text_before(event)))
            batch.unprepared.popleft()
        self._request_vectors(batch, embedder)

    def _text_before(self, event: Event) -> str:
        """The last text of the session before a turn, as far as this process knows it."""
        if not isinstance(event, TurnTaken):
            return ""
        key = (event.theme, event.session_id)
        before = self._last_texts.get(key, "")
        self._last_texts[key] = (event.assistant or event.user)[:CONTEXT_CHARS_MAX]
        return before

    def _request_vectors(self, batch: Batch, embedder: Embedder | None) -> None:
        """Start embedding the batch; the backfill does it later while the embedder has not caught up."""
        self._behind &= not self.queue.idle
        if embedder is None or not self.settings.embed_on_write or self._behind:
            return
        # The backfill embeds long texts: they would take the time of many others.
        passages = [each for each in passages_of(batch.prepared) if not each.is_long(self.settings)]
        wanted = [(passage, passage.texts(self.settings)) for passage in passages]
        vectors = iter(self.queue.submit(embedder, [text for _, texts in wanted for text in texts]))
        batch.requested = [(passage, dict(zip(texts, vectors, strict=False))) for passage, texts in wanted]
        batch.requested_at, batch.model = time.monotonic(), embedder.model

    def _collect_vectors(self, batch: Batch, hurried: Callable[[], bool]) -> None:
        """Wait for the vectors, and give those that came to their passages."""
        requested, batch.requested = batch.requested, []
        missing: Collection[Future[Vector]] = [vector for _, vectors in requested for vector in vectors.values()]
        while missing:
            wait_s = min(self.settings.embed_wait_s, HURRIED_WAIT_S_MAX if hurried() else math.inf)
            left_s = 0.0 if self._behind else batch.requested_at + wait_s - time.monotonic()
            missing = wait(missing, timeout=max(0.0, min(left_s, LOOK_S))).not_done
            if left_s <= 0:
                break
        self._behind |= bool(missing)
        for passage, vectors in requested:
            if not all(vector.done() for vector in vectors.values()):
                self.late.update({(batch.model, text): vector for text, vector in vectors.items()})
            elif error := next((error for vector in vectors.values() if (error := vector.exception())), None):
                log.info("rows are stored without vectors, which follow later: %s", error)
            else:
                passage.vector, *passage.pieces = [vector.result() for vector in vectors.values()]
