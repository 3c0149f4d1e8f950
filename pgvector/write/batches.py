"""Batches on their way into rows: validated, embedded, written; what Postgres refuses becomes a dead letter."""

from __future__ import annotations

import logging
import sys
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

from cachetools import LRUCache

from ..background import BackgroundExecutor
from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError, Refused, TooSlow, Unavailable
from ..model import Event, TurnTaken, Vector
from ..outbox.codec import encode
from ..outbox.dead_letters import DeadLetters
from ..outbox.heartbeat import WriterStatus
from ..outbox.segments import Record
from ..outbox.spool import Spool
from ..settings import Settings
from ..store import rows
from ..store.connection.database import Database
from ..store.passages import CONTEXT_CHARS_MAX, Passage, PreparedEvent, prepare
from .sources import Sources
from .validation import validate

log = logging.getLogger("hermes.pgvector")

BATCHES_MAX = EMBED_THREADS_MAX = 2
SESSIONS_MAX = 1000
UNEXPECTED_MAX = 5
UNEXPECTED = "an unexpected error; the log names it"


@dataclass(slots=True)
class Batch:
    """Records of one spool on their way into rows.

    A record goes from `unprepared` to `prepared` or `rejected`, and from there when it is settled, so a retry repeats
    nothing. `rejected` are dead letters as (name, reason, raw). `counts` are added to the status when all is settled.
    """

    source: Spool
    records: list[Record]
    unprepared: deque[Record]
    prepared: list[PreparedEvent] = field(default_factory=list)
    rejected: deque[tuple[str, str, str]] = field(default_factory=deque)
    request: Future[list[Vector]] | None = None
    # How many events one transaction may have.
    part_max: int = sys.maxsize
    unexpected: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def reject(self, record: Record, reason: str) -> None:
        """Make a dead letter of a record."""
        if record.event is not None:
            self.reject_event(record.event, reason)
            return
        folder = self.source.folder
        name = f"damaged-{folder.name if folder else 'own'}-{record.position.segment}-{record.position.offset}"
        self.rejected.append((name, reason, record.raw.decode("latin-1")))

    def reject_event(self, event: Event, reason: str) -> None:
        """Make a dead letter of an event."""
        self.rejected.append((event.id, reason, encode(event).decode("ascii")))

    def isolate(self) -> None:
        """Have the events tried one by one, and reject the one that fails alone: it would block the queue for ever."""
        if self.unprepared:
            self.reject(self.unprepared.popleft(), UNEXPECTED)
        elif self.part_max == 1 and self.prepared:
            self.reject_event(self.prepared.pop(0).event, UNEXPECTED)
        self.part_max, self.unexpected = 1, 0


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
            batch.isolate()
        batch.unexpected += 1
        try:
            if batch.unprepared:
                self._prepare(batch, embedder)
            self._collect_vectors(batch)
            self._write(batch)
            self._keep_rejected(batch)
        except (PgvectorError, OSError):
            batch.unexpected -= 1
            raise
        self._batches.popleft()
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
                batch.reject(record, str(error))
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                batch.reject(record, f"its values are not of the expected kind ({type(error).__name__})")
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
        return [passage for passage in _passages(batch.prepared) if not passage.chunks(self.settings)]

    def _write(self, batch: Batch) -> None:
        """Write the batch; when Postgres refuses it, in halves, until the bad event is alone and is rejected.

        What is too slow as a whole is tried in halves at the next attempt: it may only have waited for a lock.
        """
        limits = self.settings.connect_timeout_s, self.settings.statement_timeout_s
        size = batch.part_max
        while batch.prepared:
            part = batch.prepared[:size]
            try:
                with self.database.transaction(*limits) as connection:
                    fresh = rows.apply(connection, part)
            except TooSlow:
                batch.part_max = max(1, len(part) // 2)
                raise
            except BadEvent as error:
                if len(part) > 1:
                    size = len(part) // 2
                    continue
                if any(passage.vector for passage in part[0].passages):
                    # The vectors may be what does not fit; then those of the whole batch do not.
                    for passage in _passages(batch.prepared):
                        passage.vector = None
                    continue
                batch.reject_event(part[0].event, str(error))
            else:
                batch.counts.update(applied=fresh, already_there=len(part) - fresh)
                self.unembedded |= any(passage.vector is None for passage in _passages(part))
            del batch.prepared[: len(part)]
            size = batch.part_max

    def _keep_rejected(self, batch: Batch) -> None:
        while batch.rejected:
            name, reason, raw = batch.rejected[0]
            if not self.dead_letters.keep(name, reason, raw):
                folder = self.dead_letters.folder
                raise OSError(f"{folder} is full or cannot be written: free it, nothing is lost meanwhile")
            log.warning("an event was moved to the dead letters: %s; run: hermes-pgvector doctor", reason)
            batch.counts.update(set_aside=1)
            batch.rejected.popleft()


def _passages(events: list[PreparedEvent]) -> list[Passage]:
    return [passage for event in events for passage in event.passages]
