"""Fills in the vectors and words of rows that were stored without, and counts common words, one process of a fleet at a
time."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from itertools import islice
from uuid import uuid4

from ..background import BackgroundExecutor
from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError, Refused, Unavailable
from ..model import Vector
from ..settings import Settings
from ..store import history, upkeep
from ..store.connection.database import Connection, Database
from ..store.queries import Kind
from ..text.theme_names import hidden_pattern

log = logging.getLogger("hermes.pgvector")

LEASE_S = 30.0
CHUNK_S = 0.5
RETRY_S = 5.0
RELEASE_S_MAX = 0.5
SKIPPED_MAX = 1000
CHUNK_ROWS_MAX = 512
WORDED_ROWS_MAX = 64
PRUNE_INTERVAL_S = 3600.0
COUNT_INTERVAL_S = 120.0


class Backfill:
    """Works in small steps between the batches of the drain thread, which alone uses it; `wake` ends its rest."""

    def __init__(
        self, database: Database, errands: BackgroundExecutor, settings: Settings, wake: Callable[[], None]
    ) -> None:
        self._database, self._errands, self._settings, self._wake = database, errands, settings, wake
        self._holder = uuid4().hex
        self._due = 0.0
        self._prune_due = time.monotonic() + PRUNE_INTERVAL_S
        self._count_due = 0.0
        self._chunk_max = CHUNK_ROWS_MAX
        self._skipped: OrderedDict[tuple[Kind, int], None] = OrderedDict()
        self._rows: list[upkeep.Unembedded] = []
        self._texts: list[str] = []
        self._ready: list[Vector] = []
        self._vectors: Future[list[Vector]] | None = None
        self._holds = self._embedder_known = False
        self.healed = 0

    @property
    def _lease_s(self) -> float:
        """Longer than one request to the embedder may take, which renews it."""
        return max(LEASE_S, 1.5 * self._settings.embed_timeout_s)

    def soon(self) -> None:
        """There is something to heal: look at the next step."""
        self._due = 0.0

    def postpone(self) -> None:
        """After an error: leave what was at work, and begin again a little later."""
        self._forget()
        self._due = self._soonest()

    def step(self, embedder: Embedder | None) -> bool:
        """Add words, count those of a theme, store vectors that came, or ask for some; returns whether rows changed.

        Raises PgvectorError; call `postpone` then.
        """
        self._prune()
        if embedder is not None and not self._embedder_known:
            self._due = 0.0
        self._embedder_known = embedder is not None
        if self._vectors is not None:
            return self._collect(self._vectors, embedder)
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + self._settings.heal_interval_s
        if self._add_words() or self._count_words():
            self._due = 0.0
            return True
        if embedder is None or not self._settings.embed_on_write:
            return False
        with self._database.connection(self._settings.connect_timeout_s) as connection:
            chunk = self._chunk(embedder)
            self._rows = upkeep.unembedded(connection, chunk, list(self._skipped))
            if not self._rows:
                self._release(connection)
                return False
            self._holds = upkeep.claim(connection, upkeep.HEAL, self._holder, self._lease_s)
        if not self._holds:
            self._rows, self._due = [], self._soonest()
            return False
        self._limit(chunk)
        self._ask(embedder)
        return False

    def _limit(self, texts_max: int) -> None:
        """Leave rows past so many texts for later, but not the first: it would take too long to store them at once."""
        self._texts = []
        for number, row in enumerate(self._rows):
            texts = row.texts(self._settings)
            if number and len(self._texts) + len(texts) > texts_max:
                del self._rows[number:]
                return
            self._texts += texts

    def _ask(self, embedder: Embedder) -> None:
        """Have the next of the texts embedded: a long row is many of them."""
        begun = len(self._ready)
        texts = self._texts[begun : begun + self._chunk(embedder)]
        self._vectors = self._errands.submit(embedder.embed_passages, texts, self._settings.embed_timeout_s)
        self._vectors.add_done_callback(lambda _: self._wake())

    def _forget(self) -> None:
        self._rows, self._texts, self._ready, self._vectors = [], [], [], None

    def _add_words(self) -> bool:
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        with self._database.transaction(*limits) as connection:
            return upkeep.add_words(connection, WORDED_ROWS_MAX) > 0

    def _count_words(self) -> bool:
        if time.monotonic() < self._count_due:
            return False
        self._count_due = time.monotonic() + COUNT_INTERVAL_S
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        with self._database.transaction(*limits) as connection:
            counted = upkeep.claim(connection, upkeep.WORDS, self._holder, COUNT_INTERVAL_S) and upkeep.count_words(
                connection, self._settings.word_candidates_max, hidden_pattern(self._settings.bench_themes)
            )
        if counted:
            self._count_due = 0.0
        return counted

    def let_go(self) -> None:
        """Leave the work to another process of the fleet, at once if Postgres answers."""
        self._forget()
        self._due = 0.0
        if self._holds:
            with contextlib.suppress(PgvectorError), self._database.connection(RELEASE_S_MAX) as connection:
                self._release(connection)

    def _release(self, connection: Connection) -> None:
        if self._holds:
            self._holds = False
            upkeep.release(connection, upkeep.HEAL, self._holder)

    def _soonest(self) -> float:
        return time.monotonic() + min(RETRY_S, self._settings.heal_interval_s)

    def _chunk(self, embedder: Embedder) -> int:
        """As many rows, or texts, as keep the embedder busy for a moment: new rows need it too."""
        fits = int(CHUNK_S / max(embedder.seconds_per_text, 1e-4))
        return max(1, min(fits, self._settings.embed_batch_max, self._chunk_max))

    def _collect(self, future: Future[list[Vector]], embedder: Embedder | None) -> bool:
        if not future.done():
            return False
        self._vectors = None
        try:
            self._ready += future.result()
        except Unavailable as error:
            log.info("vectors must wait: %s", error)
            self.postpone()
            return False
        except (Refused, ValueError) as error:
            found = self._rows
            self._forget()
            self._narrow(found, error)
            return True
        if len(self._ready) == len(self._texts):
            return self._store()
        if embedder is None or not self._renewed():
            self.postpone()
        else:
            self._ask(embedder)
        return False

    def _renewed(self) -> bool:
        with self._database.connection(self._settings.connect_timeout_s) as connection:
            self._holds = upkeep.claim(connection, upkeep.HEAL, self._holder, self._lease_s)
        return self._holds

    def _store(self) -> bool:
        found, ready = self._rows, iter(self._ready)
        vectors = [list(islice(ready, len(row.texts(self._settings)))) for row in found]
        self._forget()
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        try:
            with self._database.transaction(*limits) as connection:
                healed = upkeep.embed(connection, found, vectors)
        except BadEvent as error:
            self._narrow(found, error)
            if len(found) == 1:
                # The column may fit no vector at all: not a warning for every row of it, one after the other.
                self._due = self._soonest()
            return len(found) > 1
        self.healed += healed
        self._chunk_max = min(2 * self._chunk_max, CHUNK_ROWS_MAX)
        self._due = 0.0
        return True

    def _narrow(self, found: list[upkeep.Unembedded], error: Exception) -> None:
        """One row spoils the request: ask for rows singly, and pass over the one that is refused alone."""
        self._chunk_max = 1
        if len(found) == 1:
            log.warning("row %s of %s gets no vector: %s", found[0].id, found[0].kind, error)
            self._skipped[(found[0].kind, found[0].id)] = None
            if len(self._skipped) > SKIPPED_MAX:
                self._skipped.popitem(last=False)
        self._due = 0.0

    def _prune(self) -> None:
        if time.monotonic() < self._prune_due:
            return
        self._prune_due = time.monotonic() + PRUNE_INTERVAL_S
        self._skipped.clear()
        with self._database.connection(self._settings.connect_timeout_s) as connection:
            if upkeep.claim(connection, upkeep.PRUNE, self._holder, PRUNE_INTERVAL_S):
                upkeep.prune_events(connection, self._settings.event_ledger_days)
                history.prune(connection, self._settings.history_days)
