"""Batches on their way into rows: validated, embedded, written, acknowledged."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import TimeoutError as FutureTimeout

from cachetools import LRUCache

from ..background import BackgroundExecutor
from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError, Refused, Unavailable
from ..model import Event, TurnTaken
from ..outbox.dead_letters import DeadLetters
from ..outbox.heartbeat import WriterStatus
from ..outbox.spool import Spool
from ..settings import Settings
from ..store.connection.database import Database
from ..store.passages import CONTEXT_CHARS_MAX, Passage, prepare
from . import refusals
from .batch import Batch, passages_of
from .sources import Sources
from .validation import validate

log = logging.getLogger("hermes.pgvector")

BATCHES_MAX = EMBED_THREADS_MAX = 2
SESSIONS_MAX = 1000
UNEXPECTED_MAX = 5


class BatchProcessor:
    """Moves events from the spools into Postgres, in order, each once. For the writer thread alone.

    While one batch is written, the next one is embedded. `rename` gives an event the final names of its theme and
    author, or raises BadEvent. `unembedded` is set when rows were stored without a vector.
    """

    def __init__(
        self,
        spool: Spool,
        dead_letters: DeadLetters,
        database: Database,
        settings: Settings,
        rename: Callable[[Event], Event],
    ) -> None:
        self.spool, self.dead_letters, self.database, self.settings = spool, dead_letters, database, settings
        self._rename = rename
        self.executor = BackgroundExecutor("hermes-pgvector-embed", EMBED_THREADS_MAX)
        self.status = WriterStatus(settings.stuck_after_s)
        self.sources = Sources(spool, settings)
        self.unembedded = False
        self._batches: deque[Batch] = deque()
        self._last_texts: LRUCache[tuple[str, str], str] = LRUCache(SESSIONS_MAX)

    def step(self, embedder: Embedder | None) -> bool:
        """Settle one batch; False when there is nothing more to do now.

        Raises Unavailable or SchemaNotApplied when Postgres cannot take it now, OSError when the dead letters cannot be
        written. Call it again: nothing is lost or repeated.
        """
        self.sources.next_orphan()
        while len(self._batches) < BATCHES_MAX and (taken := self.sources.take()):
            self._batches.append(Batch(*taken, unprepared=deque(taken[1])))
            self._prepare(self._batches[-1], embedder)
        if not self._batches:
            self.status.notify()
            return not self.sources.orphans_done
        batch = self._batches[0]
        if batch.unexpected >= UNEXPECTED_MAX:
            refusals.isolate(batch)
        batch.unexpected += 1
        try:
            if batch.unprepared:
                self._prepare(batch, embedder)
            self._collect_vectors(batch)
            refusals.write(batch, self.database, self.settings)
            refusals.keep(batch, self.dead_letters)
        except (PgvectorError, OSError):
            batch.unexpected -= 1
            raise
        self._batches.popleft()
        self.unembedded |= batch.unembedded
        self.status.add(**batch.counts, adopted=0 if batch.source is self.spool else len(batch.records))
        batch.source.acknowledge(batch.records)
        self.status.notify()
        return True

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
        """Start embedding the batch, unless its rows would wait too long for it: then the backfill embeds them."""
        texts = [passage.embedded for passage in self._to_embed(batch)]
        wait_s = self.settings.embed_wait_s
        if embedder is None or not self.settings.embed_on_write or not texts:
            return
        if embedder.seconds_per_text * len(texts) <= wait_s:
            batch.request = self.executor.submit(embedder.embed_passages, texts, 2 * wait_s)

    def _collect_vectors(self, batch: Batch) -> None:
        request, batch.request = batch.request, None
        if request is None:
            return
        try:
            vectors = request.result(timeout=2 * self.settings.embed_wait_s)
        except (Unavailable, Refused, FutureTimeout) as error:
            log.info("rows are stored without vectors, which follow later: %s", str(error) or "the embedder is slow")
            return
        for passage, vector in zip(self._to_embed(batch), vectors, strict=True):
            passage.vector = vector

    def _to_embed(self, batch: Batch) -> list[Passage]:
        """The passages that are embedded before they are stored; those of many chunks are left to the backfill."""
        return [passage for passage in passages_of(batch.prepared) if not passage.chunks(self.settings)]
