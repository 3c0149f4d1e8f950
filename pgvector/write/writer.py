"""AsyncWriter: one daemon thread that brings events from the spool into Postgres and keeps the rows whole.

It retries while a service is down, restarts on the next event if it ever died, and tells how it fares.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace

from ..background import BackgroundExecutor
from ..embedding.protocol import Embedder
from ..errors import PgvectorError, SchemaNotApplied, explained
from ..mirror.home import Home
from ..model import Counters, Event
from ..outbox.codec import encode
from ..outbox.counters import Health, Tally
from ..outbox.heartbeat import Heartbeat, HeartbeatWriter
from ..outbox.spool import REFUSALS_LOGGED_EVERY_S, Spool
from ..settings import Settings
from ..store.connection.database import Database
from .backfill import Backfill
from .batches import BatchProcessor

log = logging.getLogger("hermes.pgvector")

IDLE_S_MAX = 1.0
RETRY_S_MIN = 0.2
SCHEMA_RETRY_S_MIN = 5.0
STOP_GRACE_S = 1.0
LOOKS_MAX = 5
ERRAND_THREADS_MAX = 2
DIVERTED_SHARE = 0.5


class AsyncWriter:
    """Safe for any thread; `accept` returns in microseconds.

    `ready` makes the database usable and returns the embedder whose vectors fit it, or None when there is none now. It
    is called by the drain thread before every batch, and raises Unavailable or SchemaNotApplied.
    """

    def __init__(
        self, spool: Spool, home: Home, database: Database, ready: Callable[[], Embedder | None], settings: Settings
    ) -> None:
        self._spool, self._home, self._database, self._ready, self._settings = spool, home, database, ready, settings
        self._reset()

    def _reset(self) -> None:
        self._tally = Tally()
        self._pulse = HeartbeatWriter(self._spool.appear, self._settings.stuck_after_s)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._hurried = self._flushes = 0
        self._log_at = 0.0
        self._woken = threading.Event()
        errands = BackgroundExecutor("hermes-pgvector-embed", ERRAND_THREADS_MAX)
        self._drain = BatchProcessor(self._spool, self._home, self._database, self._settings, errands, self._tally)
        self._healer = Backfill(self._database, errands, self._settings, self._woken.set)

    def accept(self, event: Event) -> bool:
        """Make the event durable and have it written soon. False, and counted, when the spool refuses it."""
        if self._spool.pending and self._pulse.overdue:
            self._pulse.warn(self._spool.pending)
        accepted = self._spool.append(event)
        self._tally.add(offered=1, accepted=int(accepted), refused=int(not accepted))
        self.wake()
        return accepted

    def divert(self, event: Event, reason: str) -> bool:
        """Take an event that must not be stored as it is: it is set aside for the operator. False when it cannot be.

        These take a part of the room only: what cannot be stored at all and finds none holds up the queue.
        """
        kept = self._home.set_aside(event.id, reason, encode(event).decode("ascii"), share=DIVERTED_SHARE)
        self._tally.add(offered=1, accepted=int(kept), refused=int(not kept), set_aside=int(kept))
        if not kept and time.monotonic() >= self._log_at:
            self._log_at = time.monotonic() + REFUSALS_LOGGED_EVERY_S
            where = self._home.aside_folder
            log.warning("%s is full or cannot be written: events are refused; see: hermes-pgvector spool list", where)
        return kept

    def wake(self) -> None:
        """Have the thread look for work now: connect, adopt, write, heal."""
        self._woken.set()
        if self._thread is None or not self._thread.is_alive() or self._stopping:
            self._start()

    def flush(self, timeout_s: float, *, adopted: bool = False) -> bool:
        """Wait until all that was accepted by now is settled; False when `timeout_s` seconds were not enough.

        With `adopted` also what dead processes left.
        """
        goal = self._spool.appended

        def settled() -> bool:
            own = self._spool.appended - self._spool.pending >= goal
            return own and not (adopted and self._drain.adopting)

        if settled():
            return True
        with self._lock:
            self._hurried += 1
            self._flushes += 1
        self.wake()
        self._tally.notify()
        try:
            return self._tally.wait_until(settled, timeout_s)
        finally:
            with self._lock:
                self._hurried -= 1

    def stop(self, timeout_s: float) -> bool:
        """Write what is pending, for at most `timeout_s` seconds, and end the thread. What is left stays in the spool.

        Harmless when never started or already stopped. A later event starts the thread again.
        """
        drained = self.flush(timeout_s)
        with self._lock:
            self._stopping = True
            thread = self._thread
        self._woken.set()
        self._tally.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=STOP_GRACE_S)
            if thread.is_alive():
                log.info("the writer is still busy; what it holds stays in the spool")
        return drained

    def pending(self) -> int:
        """Events accepted or adopted and not yet settled."""
        return self._spool.pending + self._drain.adopted_pending

    @property
    def counters(self) -> Counters:
        """What became of the events so far, without those that are left to an adopter, be it this process again."""
        counts, left = self._tally.counts, self._spool.handed_over
        return replace(counts, offered=counts.offered - left, accepted=counts.accepted - left, pending=self.pending())

    @property
    def health(self) -> Health:
        """Whether the writer is well."""
        return self._tally.health

    @property
    def stuck(self) -> bool:
        """Whether events wait, none was settled for `stuck_after_s` seconds, and the thread does not say why."""
        return self.pending() > 0 and self._pulse.overdue

    @property
    def healed(self) -> int:
        """Rows that got their vector later."""
        return self._healer.healed

    def alive(self) -> bool:
        """Whether the drain thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def abandon(self) -> None:
        """Begin anew in a forked child, where the thread does not exist and its locks mean nothing."""
        self._drain.abandon()
        self._reset()

    def _start(self) -> None:
        with self._lock:
            self._stopping = False
            if self._thread is None or not self._thread.is_alive():
                self._pulse.rise()
                self._thread = threading.Thread(target=self._run, name="hermes-pgvector-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause_s = 0.0
        while self._goes_on():
            self._woken.clear()
            flushes = self._flushes
            try:
                self._beat()
                busy = self._step()
                pause_s = 0.0
            except (PgvectorError, OSError) as error:
                pause_s = self._failed(error, pause_s)
            except Exception as error:
                log.warning("the writer met an unexpected %s", type(error).__name__)
                log.debug("the writer met an unexpected error", exc_info=error)
                pause_s = self._failed(error, pause_s)
            else:
                if busy:
                    continue
            self._rest(pause_s, flushes)

    def _goes_on(self) -> bool:
        with self._lock:
            if not self._stopping:
                return True
        # Outside the lock, which hooks take: this one may wait for Postgres.
        self._healer.let_go()
        with self._lock:
            if not self._stopping:
                return True
            self._drain.let_go()
            self._thread = None
            return False

    def _step(self) -> bool:
        embedder = self._ready()
        busy = self._drain.step(embedder)
        if self._drain.unembedded:
            self._drain.unembedded = False
            self._healer.soon()
        self._tally.succeeded()
        return busy or self._heal(embedder)

    def _heal(self, embedder: Embedder | None) -> bool:
        """What goes wrong here keeps no event from being stored: the writer is well, and new events do not wait."""
        try:
            return self._healer.step(embedder)
        except PgvectorError as error:
            log.info("rows must wait for their vectors and words: %s", error)
        except Exception as error:
            log.warning("filling in vectors and words met an unexpected %s", type(error).__name__)
            log.debug("filling in vectors and words met an unexpected error", exc_info=error)
        self._healer.postpone()
        return False

    def _beat(self) -> None:
        if self._stopping:
            return  # the spool may be closed by now, and would be opened again
        for _ in range(LOOKS_MAX):
            # A hook may be between making an event durable and counting it.
            counts = self.counters
            if counts.balanced:
                break
        health = self._tally.health
        self._pulse.beat(
            Heartbeat(
                counters=counts,
                last_success=health.last_success,
                failing_since=health.failing_since,
                problem=health.problem,
                healed=self._healer.healed,
            )
        )

    def _rest(self, pause_s: float, flushes: int) -> None:
        """Wait for work, or out the pause after a failure, which a flush that began since `flushes` were counted ends.

        The first event waits the linger for company, also when a batch is full before: the thread would take the
        interpreter from the very hooks that fill it.
        """
        if pause_s:
            self._pause(pause_s, flushes)
            return
        if self._woken.wait(IDLE_S_MAX) and not (self._hurried or self._stopping):
            self._tally.wait_until(lambda: self._hurried > 0 or self._stopping, self._settings.batch_linger_s)

    def _pause(self, pause_s: float, flushes: int) -> None:
        until = time.monotonic() + pause_s
        while (left := until - time.monotonic()) > 0:
            self._beat()
            if self._tally.wait_until(lambda: self._stopping or self._flushes != flushes, min(left, IDLE_S_MAX)):
                return

    def _failed(self, error: Exception, pause_s: float) -> float:
        """Note what is wrong; returns how many seconds to wait before the next try."""
        if isinstance(error, PgvectorError):
            self._tally.failed(explained(error))
        else:
            self._tally.failed(
                str(error) if isinstance(error, OSError) else f"unexpected {type(error).__name__}; see the log"
            )
        base = SCHEMA_RETRY_S_MIN if isinstance(error, SchemaNotApplied) else RETRY_S_MIN
        return min(self._settings.retry_max_s, max(base, pause_s * 2)) * random.uniform(0.8, 1.0)
