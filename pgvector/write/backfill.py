"""Fills in the vectors and words of rows that were stored without them, and counts common words.

One process of a fleet does it at a time: the one that holds the lease.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from itertools import chain, islice
from uuid import uuid4

from cachetools import LRUCache

from ..background import BackgroundExecutor
from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError, Refused
from ..model import Vector
from ..settings import Settings
from ..store import upkeep
from ..store.connection.database import Connection, Database
from ..store.queries import Kind
from ..text.theme_names import hidden_pattern

log = logging.getLogger("hermes.pgvector")

LEASE_S_MIN = 30.0
REQUEST_S = 0.5
RETRY_S = 5.0
RELEASE_S_MAX = 0.5
SKIPPED_MAX = 1000
REQUEST_TEXTS_MAX = 512
WORDS_ROWS_MAX = 64
PRUNE_INTERVAL_S = 3600.0
COUNT_INTERVAL_S = 120.0


class Backfill:
    """Works in small steps between the batches of the writer thread, which alone uses it.

    `wake` is called when vectors have come. `rows_done` counts the rows that got a vector.
    """

    def __init__(
        self, database: Database, executor: BackgroundExecutor, settings: Settings, wake: Callable[[], None]
    ) -> None:
        self._database, self._executor, self._settings, self._wake = database, executor, settings, wake
        self._holder = uuid4().hex
        self._holds_lease = self._had_embedder = False
        self._next_at = self._count_at = self._renew_at = 0.0
        self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        self._texts_max = REQUEST_TEXTS_MAX
        self._skipped: LRUCache[tuple[Kind, int], None] = LRUCache(SKIPPED_MAX)
        # Rows whose texts are being embedded, and their vectors.
        self._work: tuple[list[upkeep.Unembedded], Future[list[list[Vector]]]] | None = None
        self.rows_done = 0

    def run_soon(self) -> None:
        """Look for rows at the next step: some were stored without a vector."""
        self._next_at = 0.0

    def back_off(self) -> None:
        """Drop the work in progress after an error, and start again a little later."""
        self._work = None
        self._next_at = time.monotonic() + min(RETRY_S, self._settings.heal_interval_s)

    def stop(self) -> None:
        """Release the lease for another process of the fleet, at once if Postgres answers."""
        self._work, self._next_at = None, 0.0
        if self._holds_lease:
            with contextlib.suppress(PgvectorError), self._database.connection(RELEASE_S_MAX) as connection:
                self._release(connection)

    def step(self, embedder: Embedder | None) -> bool:
        """Add words, count common words, store vectors that came, or request some; returns whether rows changed.

        Raises PgvectorError; call `back_off` then.
        """
        self._prune()
        if embedder is not None and not self._had_embedder:
            self._next_at = 0.0
        self._had_embedder = embedder is not None
        if self._work is not None:
            return self._collect(*self._work)
        if time.monotonic() < self._next_at:
            return False
        self._next_at = time.monotonic() + self._settings.heal_interval_s
        if self._fill_in_words():
            self._next_at = 0.0
            return True
        if embedder is not None and self._settings.embed_on_write:
            self._begin(embedder)
        return False

    def _begin(self, embedder: Embedder) -> None:
        """Find rows without a vector, take the lease and request the vectors."""
        # One request must not keep the embedder from new rows for long.
        fits = int(REQUEST_S / max(embedder.seconds_per_text, 1e-4))
        most = max(1, min(fits, self._settings.embed_batch_max, self._texts_max))
        with self._database.connection(self._settings.connect_timeout_s) as connection:
            found = upkeep.unembedded(connection, most, list(self._skipped))
            if not found:
                self._release(connection)
                return
            self._claim(connection)
        if not self._holds_lease:
            self.back_off()
            return
        texts = self._texts(found, most)
        request = self._executor.submit(self._embed, embedder, texts, most)
        request.add_done_callback(lambda _: self._wake())
        self._work = found[: len(texts)], request

    def _texts(self, rows: list[upkeep.Unembedded], most: int) -> list[list[str]]:
        """The texts of the first rows, each with its chunks: `most` texts in all, but those of one row in any case."""
        texts: list[list[str]] = []
        for row in rows:
            own = row.texts(self._settings)
            if texts and sum(map(len, texts)) + len(own) > most:
                break  # the rest is for the next step: all at once would take too long to store
            texts.append(own)
        return texts

    def _embed(self, embedder: Embedder, texts: list[list[str]], most: int) -> list[list[Vector]]:
        """The vectors of each row. A long row has more texts than one request may have."""
        requested = list(chain.from_iterable(texts))
        vectors: list[Vector] = []
        for start in range(0, len(requested), most):
            vectors += embedder.embed_passages(requested[start : start + most], self._settings.embed_timeout_s)
        left = iter(vectors)
        return [list(islice(left, len(own))) for own in texts]

    def _collect(self, rows: list[upkeep.Unembedded], request: Future[list[list[Vector]]]) -> bool:
        """Store the vectors once they have come; renew the lease meanwhile, because a long row has many requests."""
        if not request.done():
            if time.monotonic() >= self._renew_at:
                limit_s = self._settings.connect_timeout_s
                with contextlib.suppress(PgvectorError), self._database.connection(limit_s) as connection:
                    self._claim(connection)
            return False
        self._work, self._next_at = None, 0.0
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        try:
            vectors = request.result()
            with self._database.transaction(*limits) as connection:
                self.rows_done += upkeep.embed(connection, rows, vectors)
        except (Refused, ValueError) as error:
            # The rows are tried one by one from now on, and a row that is refused alone is skipped.
            self._texts_max = 1
            if len(rows) == 1:
                log.warning("row %s of %s gets no vector: %s", rows[0].id, rows[0].kind, error)
                self._skipped[rows[0].kind, rows[0].id] = None
                if isinstance(error, BadEvent):
                    # The column may fit no vector at all: pause, so that each row does not get a warning at once.
                    self.back_off()
            return True
        self._texts_max = min(2 * self._texts_max, REQUEST_TEXTS_MAX)
        return True

    def _fill_in_words(self) -> bool:
        """Add the words of some rows, or count the common words of a theme; returns whether there was one to do."""
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        with self._database.transaction(*limits) as connection:
            if upkeep.add_words(connection, WORDS_ROWS_MAX):
                return True
            if time.monotonic() < self._count_at:
                return False
            self._count_at = time.monotonic() + COUNT_INTERVAL_S
            if not upkeep.claim(connection, upkeep.WORDS_LEASE, self._holder, COUNT_INTERVAL_S):
                return False
            hidden = hidden_pattern(self._settings.bench_themes)
            counted = upkeep.count_words(connection, self._settings.word_candidates_max, hidden)
        if counted:
            self._count_at = 0.0
        return counted

    def _prune(self) -> None:
        if time.monotonic() < self._prune_at:
            return
        self._prune_at = time.monotonic() + PRUNE_INTERVAL_S
        self._skipped.clear()
        with self._database.connection(self._settings.connect_timeout_s) as connection:
            if upkeep.claim(connection, upkeep.PRUNE_LEASE, self._holder, PRUNE_INTERVAL_S):
                upkeep.prune_events(connection, self._settings.event_ledger_days)
                upkeep.prune_history(connection, self._settings.history_days)

    def _claim(self, connection: Connection) -> None:
        """Take or renew the lease. It is short, because a killed process keeps it until it expires."""
        seconds = max(LEASE_S_MIN, 1.5 * self._settings.embed_timeout_s)
        self._renew_at = time.monotonic() + seconds / 2
        self._holds_lease = upkeep.claim(connection, upkeep.VECTORS_LEASE, self._holder, seconds)

    def _release(self, connection: Connection) -> None:
        if self._holds_lease:
            self._holds_lease = False
            upkeep.release(connection, upkeep.VECTORS_LEASE, self._holder)
