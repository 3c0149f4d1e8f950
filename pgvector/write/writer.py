"""One daemon thread that moves events from the spool into Postgres and adds what rows lack.

It retries while a service is down, and the next event restarts it if it ever ends.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ..background import HookGap
from ..embedding.protocol import Embedder
from ..errors import Condition, PgvectorError, SchemaNotApplied, explained
from ..model import Event
from ..outbox.codec import encode
from ..outbox.heartbeat import Counters, Embedding, Health, Recalls
from ..outbox.orphans import OrphanSpool
from ..outbox.spool import REFUSALS_LOGGED_EVERY_S
from ..store import upkeep
from ..store.connection.database import Connection
from .backfill import Backfill
from .batches import BatchProcessor
from .maintenance import Maintenance

log = logging.getLogger("hermes.pgvector")

IDLE_S_MAX = 1.0
RETRY_S_MIN = 0.2
SCHEMA_RETRY_S_MIN = 5.0
STOP_GRACE_S = 1.0
DIVERTED_SHARE = 0.5
HOOK_GAP_S = 2e-3
START_GAP_S = 0.1
YIELD_S_MAX = 1.0
VECTORS_S_MAX = 1.0


class AsyncWriter:
    """The writer of one process and home. Safe for any thread; `accept` returns in microseconds.

    `embedder(verify=...)` prepares the database for a batch, and returns the embedder whose vectors fit it, None when
    there is none now. With `verify` it looks again at what it knows: something has failed. Raises Unavailable or
    SchemaNotApplied. `look` reads now and then what others have changed, `recalls` tells who has answered.
    """

    def __init__(
        self,
        batches: BatchProcessor,
        embedder: Callable[..., Embedder | None],
        hooks: HookGap | None = None,
        look: Callable[[Connection], None] | None = None,
        recalls: Callable[[], Recalls] = Recalls,
    ) -> None:
        self._batches, self._embedder, self._hooks = batches, embedder, hooks or HookGap()
        self._look, self._recalls = look, recalls
        self._spool, self._settings, self._status = batches.spool, batches.settings, batches.status
        self._lock, self._stopping = threading.Lock(), False
        self._thread: threading.Thread | None = None
        self._flushes = self._flush_goal = self._failure_goal = 0
        self._woken, self._log_at, self._look_at = batches.woken, 0.0, 0.0
        self._backfill = Backfill(batches.database, batches.queue, self._settings, batches.late)
        self._maintenance = Maintenance(batches.database, self._settings)

    def accept(self, event: Event) -> bool:
        """Make the event durable and have it written soon. False, and counted, when the spool refuses it."""
        self._status.warn_if_stuck(self._spool.pending)
        accepted = self._spool.append(event)
        self._status.refused(refused=not accepted)
        if not accepted:
            self._status.add(offered=1, refused=1)
        self.wake()
        return accepted

    def divert(self, event: Event, reason: str) -> bool:
        """Move an event that must not be stored to the dead letters. False, and counted, when these are full.

        Diverted events may fill a part of the dead letters only, because an event that cannot be stored and finds no
        place there blocks the queue.
        """
        letters = self._batches.dead_letters
        kept = letters.keep(event.id, reason, encode(event).decode("ascii"), share=DIVERTED_SHARE)
        self._status.add(offered=1, accepted=int(kept), refused=int(not kept), set_aside=int(kept))
        if not kept and time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + REFUSALS_LOGGED_EVERY_S
            log.warning(
                "%s is full or cannot be written: events are refused; see: hermes-pgvector spool list", letters.folder
            )
        return kept

    def wake(self, *, awaited: bool = False) -> None:
        """Have the thread look for work soon: connect, take over orphans, write, fill in vectors.

        Its first work takes long, and would slow down the hooks that come next. So it begins when none has come for
        `START_GAP_S` seconds, or now when somebody waits for it (`awaited`).
        """
        self._hooks.called()
        if awaited:
            self.hurry()
        self._woken.set()
        if self.alive() and not self._stopping:
            return
        with self._lock:
            self._stopping = False
            if not self.alive():
                self._status.start()
                self._thread = threading.Thread(target=self._run, name="hermes-pgvector-writer", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:  # the next call tries again
                    self._status.failed(f"no thread can be started: {error}", "no thread can be started")

    def take_over(self, orphan: OrphanSpool) -> None:
        """Have the thread store what is in an orphan that this process has locked."""
        self._batches.sources.take_over(orphan)
        self.wake()

    def flush(self, timeout_s: float, *, orphans: bool = False) -> bool:
        """Wait until all events accepted by now are settled; False when `timeout_s` seconds were not enough.

        With `orphans` also those that dead processes left.
        """
        goal = self._spool.appended

        def settled() -> bool:
            own = self._spool.appended - self._spool.pending >= goal
            return own and (not orphans or self._batches.sources.orphans_done)

        if settled():
            return True
        with self._lock:
            self._flushes, self._flush_goal = self._flushes + 1, max(self._flush_goal, goal)
        self.wake(awaited=True)
        self._status.notify()
        return self._status.wait_until(settled, timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Store rows, and then vectors that are on their way, for at most `timeout_s` seconds, and end the thread.

        What is left stays in the spool. Does nothing when never started or already stopped. A later event starts the
        thread again.
        """
        until = time.monotonic() + timeout_s
        if self.flush(timeout_s):
            left_s = min(VECTORS_S_MAX, until - time.monotonic())
            self._status.wait_until(self._has_vectors, left_s)
        with self._lock:
            self._stopping = True
            thread = self._thread
        self.hurry()
        self._woken.set()
        self._status.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=STOP_GRACE_S)
            if thread.is_alive():
                log.info("the writer is still busy; its events stay in the spool")

    @property
    def counters(self) -> Counters:
        """The counters so far, without the events left in a closed spool for the process that takes it over."""
        counts, orphaned = self._status.counts, self._batches.sources.orphans_pending
        accepted, pending = self._spool.counts()
        return replace(
            counts,
            offered=counts.offered + accepted,
            accepted=counts.accepted + accepted,
            adopted=counts.adopted + orphaned,
            pending=pending + orphaned,
        )

    @property
    def health(self) -> Health:
        """Whether the writer works."""
        return self._status.health

    def condition(self) -> Condition:
        """Whether the database stores and answers, as far as known; `works` once what waited for it is stored."""
        found = self._status.condition
        return replace(found, works=found.works and self._caught_up)

    def spool_condition(self) -> Condition:
        """Whether events are kept."""
        return self._status.spool_condition

    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def hurry(self) -> None:
        """Begin now, also when hooks are coming."""
        self._hooks.hurry()

    def wait_for_start(self) -> None:
        """Wait until no hook has come for `START_GAP_S` seconds, or somebody waits."""
        self._hooks.wait(START_GAP_S)

    def _run(self) -> None:
        pause_s = 0.0
        self.wait_for_start()
        while self._goes_on():
            self._woken.clear()
            flushes = self._flushes
            try:
                self._write_heartbeat()
                busy = self._step()
                pause_s = 0.0
            except Exception as error:  # noqa: BLE001 - logged with its problem
                pause_s = self._failed(error, pause_s)
                self._pause(pause_s, flushes)
                continue
            idle_s = min(IDLE_S_MAX, self._backfill.pause_s, self._maintenance.pause_s)
            if not busy and self._woken.wait(idle_s) and self._spool.pending:
                # The first event waits for others, also when a batch is full before.
                self._status.wait_until(self._hurried, self._settings.batch_linger_s)
            self._hooks.give_way(HOOK_GAP_S, YIELD_S_MAX, self._hurried)

    def _goes_on(self) -> bool:
        if not self._stopping:
            return True
        # Outside the lock, which hooks take, because it may wait for Postgres.
        self._backfill.stop()
        self._maintenance.stop()
        self._batches.leave()
        with self._lock:
            if not self._stopping:
                return True
            self._batches.stop()
            self._thread = None
            return False

    def _step(self) -> bool:
        embedder = self._embedder(verify=self._batches.database.doubted or bool(self._status.health.problem))
        busy = self._batches.step(embedder, self._hurried)
        if busy:
            self._maintenance.rows_changed()
        if self._batches.unembedded:
            self._backfill.run_soon()
            self._batches.unembedded = False
        self._status.succeeded()
        return self._complete_rows(embedder) or busy

    def _complete_rows(self, embedder: Embedder | None) -> bool:
        """Add vectors and words. An error here is no problem of the writer, which goes on storing events."""
        try:
            self._look_for_rows()
            changed = self._backfill.step(embedder if self._settings.embed_on_write else None)
            self._status.notify()
        except Exception as error:  # noqa: BLE001 - logged with its problem
            problem = _problem(error)
            log.info("rows wait for their vectors: %s", problem)
            self._backfill.back_off(problem)
            return False
        try:
            # Rows of other programs can wait; events cannot.
            return changed or self._maintenance.step()
        except Exception as error:  # noqa: BLE001 - logged with its problem
            log.info("rows wait for their words: %s", _problem(error))
        return False

    def _look_for_rows(self) -> None:
        """Look now and then for rows that another program left without vectors or words, and for new links."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + self._settings.heal_interval_s
        with self._batches.database.occasional_connection(self._settings.connect_timeout_s) as connection:
            if self._look is not None:
                self._look(connection)
            self._batches.look(connection)
            lacking = upkeep.lacking(connection)
        if lacking.vectors:
            self._backfill.run_soon()
        if lacking.words:
            self._maintenance.run_soon()

    def _write_heartbeat(self) -> None:
        if not self._stopping:  # the spool may be closed by now, and would be opened again
            backfill = self._backfill
            embedding = Embedding(backfill.rows_done, round(backfill.rows_per_s, 1), backfill.problem)
            self._status.beat(self._spool.ensure_folder, self.counters, embedding, self._recalls())

    @property
    def _caught_up(self) -> bool:
        """Whether the events are settled that had waited at the last failure, and those of dead processes."""
        settled = self._spool.appended - self._spool.pending
        return settled >= self._failure_goal and self._batches.sources.orphans_done

    def _has_vectors(self) -> bool:
        """Whether all rows of this process have their vectors, or do not get them soon."""
        return self._backfill.waits or not (self._backfill.wanted or self._batches.unembedded)

    def _hurried(self) -> bool:
        """Whether somebody waits for the events to be written."""
        return self._stopping or self._spool.appended - self._spool.pending < self._flush_goal

    def _pause(self, pause_s: float, flushes: int) -> None:
        """Wait before a retry; a flush that began after `flushes` were counted ends it."""
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            self._write_heartbeat()
            if self._status.wait_until(lambda: self._stopping or self._flushes != flushes, min(left, IDLE_S_MAX)):
                return

    def _failed(self, error: Exception, pause_s: float) -> float:
        """Note the problem; returns the seconds to wait before the next try."""
        self._failure_goal = self._spool.appended
        self._status.failed(_problem(error), str(error) if isinstance(error, PgvectorError) else "")
        base = SCHEMA_RETRY_S_MIN if isinstance(error, SchemaNotApplied) else RETRY_S_MIN
        return min(self._settings.retry_max_s, max(base, pause_s * 2)) * random.uniform(0.8, 1.0)


def _problem(error: Exception) -> str:
    """What an operator reads about an error. The message of an unexpected one is only in the log, for debugging."""
    if isinstance(error, PgvectorError | OSError):
        return explained(error)
    log.warning("the writer met an unexpected %s", type(error).__name__)
    log.debug("the writer met an unexpected error", exc_info=error)
    return f"unexpected {type(error).__name__}; see the log"
