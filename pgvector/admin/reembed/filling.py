"""Fills the second column of vectors, the newest rows first, while agents go on."""

from __future__ import annotations

import threading
import time

from ...embedding.protocol import Embedder
from ...errors import DatabaseUnavailable
from ...settings import Settings
from ...store import second_column
from ...store.connection.database import Database
from ...store.schema.preflight import Connection
from ...store.schema.verification import Origin
from ...write.backfill import Backfill
from ...write.embedding_queue import EmbeddingQueue
from ..console import Console, duration
from ..rate_limit import waiting

STEP_S = 0.1
SAY_S = 15.0
TRIES = 5


class Filling:
    """A backfill of one of the columns: of the `second`, or of the first one after it has been replaced.

    `refused` are the rows without a vector because the embedder refuses them, with the reason.
    """

    def __init__(self, database: Database, embedder: Embedder, settings: Settings, *, second: bool) -> None:
        self._embedder, self._woken = embedder, threading.Event()
        self._vectors = Backfill(database, EmbeddingQueue(settings, self._woken.set), settings, second=second)
        # The lock of the command keeps others away, and a killed run leaves its lease.
        self._vectors.needs_lease = False
        self.refused = self._vectors.refused
        self._failures, self._waits = 0, False

    @property
    def rows_done(self) -> int:
        return self._vectors.rows_done

    def run(self, console: Console, total: int) -> None:
        """Work until `total` rows got a vector, or no row lacks one; finished parts stay when it is interrupted.

        Agents may store rows as fast as this embeds them, so it does not wait for the last one.
        Raises EmbedderUnavailable, EmbedderMismatch and DatabaseUnavailable.
        """
        started = said = time.monotonic()
        before = self.rows_done
        self._vectors.run_soon()
        try:
            with console.progress() as progress:
                task = progress.add_task("vectors", total=total)
                done = 0
                while self._step(console) and done + len(self.refused) < total:
                    done, took_s = self.rows_done - before, time.monotonic() - started
                    pace = done / max(took_s, 0.1)
                    progress.update(task, completed=done, total=max(total, done))
                    if progress.disable and time.monotonic() > said + SAY_S:
                        said = time.monotonic()
                        left_s = (max(total, done) - done) / max(pace, 0.01)
                        console.say(
                            f"{done:,} of {max(total, done):,} rows, {pace:,.0f} a second, {duration(left_s)} left"
                        )
                done = self.rows_done - before
                progress.update(task, completed=done, total=max(total, done))
        finally:
            self._vectors.stop()

    def _step(self, console: Console) -> bool:
        self._woken.clear()
        try:
            changed = self._vectors.step(self._embedder)
            self._failures = 0
        except DatabaseUnavailable:
            # Who deletes or moves these rows may lock them in another order; they are read again.
            self._failures += 1
            if self._failures == TRIES:
                raise
            self._vectors.stop()
            changed = False
        self._waits = waiting(self._vectors, self._embedder, console, self._waits)
        if not changed:
            self._woken.wait(STEP_S)
        return self._vectors.wanted


def build_indexes(connection: Connection, origin: Origin, console: Console, *, only: str = "") -> None:
    """Build the indexes of the second column that are missing; with `only`, those that have it in their name."""
    due = [each for each in second_column.indexes(connection, origin) if not each.built and only in each.name]
    for number, index in enumerate(due, 1):
        with console.busy(f"building index {index.final} ({number} of {len(due)})"):
            second_column.build(connection, index)
