"""Gives vectors to rows that were stored without them, newest first.

One process of a fleet does it at a time: the one that holds the lease.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import MutableMapping
from concurrent.futures import Future
from dataclasses import dataclass

from cachetools import TTLCache

from ..embedding.protocol import Embedder
from ..errors import BadEvent, EmbedderLimited, Refused
from ..model import Vector
from ..settings import Settings
from ..store import upkeep
from ..store.connection.database import Database
from ..store.queries import Kind
from ..store.schema.verification import Origin
from .embedding_queue import EmbeddingQueue

log = logging.getLogger("hermes.pgvector")

LEASE_S = 10.0
RETRY_S = 3.0
FETCH_PAUSE_S = 0.2
REFUSED_MAX, REFUSED_S = 1000, 900.0


@dataclass(frozen=True, slots=True)
class _Work:
    """A row and its vectors of a model, on their way."""

    row: upkeep.Unembedded
    model: str
    vectors: list[Future[Vector]]

    @property
    def done(self) -> bool:
        return all(vector.done() for vector in self.vectors)

    @property
    def error(self) -> BaseException | None:
        """Why the row gets no vectors; None when it gets all."""
        return next((error for vector in self.vectors if (error := vector.exception())), None)


class Backfill:
    """Keeps the embedding queue filled with rows that lack vectors, and stores the vectors that come.

    For one thread, which calls `step` whenever the queue has answered. `late` are the vectors that the queue owes to
    rows already, by model and text. `rows_done` counts the rows that got their vectors, `refused` are those that the
    embedder refuses, with the reason; each is left alone for REFUSED_S seconds. `problem` is why rows wait, else empty.
    `allowed` is false while another process has the lease. At most `rows_max` rows are embedded. With `second` it fills
    the second column of vectors.
    """

    def __init__(
        self,
        database: Database,
        queue: EmbeddingQueue,
        settings: Settings,
        late: MutableMapping[tuple[str, str], Future[Vector]] | None = None,
        *,
        rows_max: int = sys.maxsize,
        second: bool = False,
    ) -> None:
        self._database, self._queue, self._settings = database, queue, settings
        self._late = {} if late is None else late
        self._rows_max = rows_max
        self._second = second
        self._lease = upkeep.Lease(upkeep.REEMBED_LEASE if second else upkeep.VECTORS_LEASE, LEASE_S)
        self._next_at = 0.0
        self._wanted = False
        self._began: tuple[float, int] | None = None
        self._work: list[_Work] = []
        self.needs_lease = self.allowed = self._has_embedder = True
        self.refused: TTLCache[tuple[Kind, int], str] = TTLCache(REFUSED_MAX, REFUSED_S)
        self.rows_done = 0
        self.problem = ""
        self._limited_at: float | None = None

    @property
    def busy(self) -> bool:
        """Whether vectors are on their way."""
        return bool(self._work)

    @property
    def wanted(self) -> bool:
        """Whether rows may lack vectors, as far as this process knows."""
        return self._wanted or self.busy

    @property
    def pause_s(self) -> float:
        """Seconds until the next step, if no vectors come before; infinite while there is no need for one."""
        return max(0.0, self._next_at - time.monotonic()) if self._wanted and self._queue.room > 0 else math.inf

    @property
    def waits(self) -> bool:
        """Whether this process adds no vectors now: it has no embedder that works, or another process does it."""
        return bool(self.problem) or not (self.allowed and self._has_embedder)

    @property
    def limited_s(self) -> float | None:
        """For how many seconds the embedder has taken no more requests, and so no vector came; None when it does."""
        return None if self._limited_at is None else time.monotonic() - self._limited_at

    @property
    def rows_per_s(self) -> float:
        """The pace since rows last began to lack vectors; 0 while none do."""
        if not self.wanted or self._began is None:
            return 0.0
        began, done = self._began
        return (self.rows_done - done) / max(1.0, time.monotonic() - began)

    def run_soon(self) -> None:
        """Look for rows at the next step."""
        if not self.wanted:
            self._began = time.monotonic(), self.rows_done
            self._next_at = 0.0
        self._wanted = True

    def back_off(self, problem: str) -> None:
        """Drop the work in progress after an error, and start again a little later."""
        self._work.clear()
        self._rest(problem)

    def _rest(self, problem: str, limited: EmbedderLimited | None = None) -> None:
        """Request nothing for a while; another process of the fleet may try meanwhile."""
        began = time.monotonic()
        self.problem, self._next_at = problem, began + max(RETRY_S, limited.wait_s if limited else 0.0)
        self._limited_at = (self._limited_at or began) if limited else None
        self._lease.release_soon(self._database)

    def stop(self) -> None:
        """Leave the rest to another process of the fleet."""
        self._work.clear()
        self._lease.release_soon(self._database)

    def claim(self) -> bool:
        """Take the lease, if no other process has it."""
        with self._database.connection() as connection:
            return self._lease.claim(connection)

    def step(self, embedder: Embedder | None) -> bool:
        """Store the vectors that came and request others; returns whether rows changed.

        Raises PgvectorError; call `back_off` then.
        """
        self._has_embedder = embedder is not None
        if embedder is not None:
            self._work = [work for work in self._work if work.model == embedder.model]
        changed = self._store()
        if self._wanted and time.monotonic() >= self._next_at and self._queue.room > 0:
            self._next_at = time.monotonic() + RETRY_S
            if embedder is not None:
                self._fetch(embedder)
        elif self.busy and self._lease.due and not self.problem:
            self.claim()
        return changed

    def _store(self) -> bool:
        done = [work for work in self._work if work.done]
        if not done:
            return False
        self._work = [work for work in self._work if not work.done]
        self._next_at = 0.0
        whole = [work for work in done if work.error is None]
        if whole:
            self._store_vectors(whole)
        for work in done:
            if isinstance(work.error, Refused):
                self._refuse(work.row, work.error)
            elif work.error is not None:
                limited = work.error if isinstance(work.error, EmbedderLimited) else None
                self._rest(str(work.error), limited)
        return bool(whole)

    def _store_vectors(self, done: list[_Work]) -> None:
        """Store the vectors of these rows; one by one when Postgres refuses them together."""
        rows, vectors = [work.row for work in done], [[each.result() for each in work.vectors] for work in done]
        origin = None if self._second else Origin(done[0].model, len(vectors[0][0]))
        try:
            with self._database.transaction(vectors=origin) as connection:
                self.rows_done += upkeep.embed(connection, rows, vectors, second=self._second)
            self.problem, self._limited_at = "", None
        except BadEvent as error:
            if len(done) == 1:
                self._refuse(done[0].row, error)
                # The column may fit no vector at all: pause, so that each row does not get a warning at once.
                self.back_off(str(error))
                return
            half = len(done) // 2
            self._store_vectors(done[:half])
            self._store_vectors(done[half:])

    def _refuse(self, row: upkeep.Unembedded, error: Refused) -> None:
        log.warning("row %s of %s gets no vector: %s", row.id, row.kind, error)
        self.refused[row.kind, row.id] = str(error)

    def _fetch(self, embedder: Embedder) -> None:
        """Take the lease, find rows without a vector, and request as many vectors as the queue has room for."""
        known = [*self.refused, *((work.row.kind, work.row.id) for work in self._work)]
        with self._database.connection() as connection:
            self.allowed = self._lease.claim(connection) or not self.needs_lease
            if not self.allowed:
                return
            left = self._rows_max - self.rows_done - len(self.refused) - len(self._work)
            found = upkeep.unembedded(
                connection, max(0, min(self._settings.embed_batch_max, left)), known, second=self._second
            )
            self._next_at = 0.0 if found else time.monotonic() + FETCH_PAUSE_S
            if not found and not self._work:
                self._wanted, self.problem = False, ""
                self._late.clear()
                self._lease.release(connection)
        room, rows = self._queue.room, iter(found)
        chosen: list[tuple[upkeep.Unembedded, list[str]]] = []
        while room > 0 and (row := next(rows, None)):
            chosen.append((row, row.passage.texts(self._settings)))
            room -= sum(map(len, chosen[-1][1]))
        self._request(embedder, chosen)

    def _request(self, embedder: Embedder, chosen: list[tuple[upkeep.Unembedded, list[str]]]) -> None:
        """Request the vectors of these texts, apart from those that are on their way already."""
        texts = dict.fromkeys(text for _, own in chosen for text in own)
        keys = {text: (embedder.model, text) for text in texts}
        late = {text: self._late.pop(key) for text, key in keys.items() if key in self._late}
        vectors = {text: vector for text, vector in late.items() if not (vector.done() and vector.exception())}
        missing = [text for text in texts if text not in vectors]
        vectors.update(zip(missing, self._queue.submit(embedder, missing), strict=True))
        self._work += [_Work(row, embedder.model, [vectors[text] for text in own]) for row, own in chosen]
