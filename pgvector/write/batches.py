"""The path of a batch: taken from a spool, planned, embedded, written, acknowledged."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from itertools import takewhile

from ..background import BackgroundExecutor, unhurried
from ..embedding.protocol import Embedder
from ..errors import BadEvent, PgvectorError, Refused, TooSlow, Unavailable
from ..mirror.home import Home
from ..model import Delegated, Event, TurnTaken, Vector
from ..outbox.codec import Record, encode
from ..outbox.counters import Tally
from ..outbox.orphans import OrphanSpool, orphans
from ..outbox.spool import Spool
from ..settings import Settings
from ..store import rows
from ..store.connection.database import Database
from ..store.passages import CONTEXT_CHARS_MAX, Passage, passages
from .validation import prepare

log = logging.getLogger("hermes.pgvector")

FLIGHTS_MAX = 2
ADOPTED_MAX = 4
SESSIONS_REMEMBERED_MAX = 1000
UNEXPECTED_MAX = 5
UNFORESEEN = "an unexpected error; the log names it"


@dataclass(slots=True)
class _Flight:
    """A batch on its way. It shrinks as its events are settled, so a retry repeats none of them.

    `became` counts what became of them; the tally learns it when all are settled, as the source does.
    """

    source: Spool
    taken: list[Record]
    planned: list[rows.Planned] = field(default_factory=list)
    rejected: deque[tuple[Record, str]] = field(default_factory=deque)
    looked_at: int = 0
    became: Counter[str] = field(default_factory=Counter)
    vectors: Future[list[Vector]] | None = None
    embed_by: float = 0.0
    ready: bool = False
    unexpected: int = 0
    # How many events one transaction may take.
    part_max: int = sys.maxsize


class BatchProcessor:
    """Moves events from the spools into Postgres, in order, each once. Used by the drain thread alone.

    While a batch is written, the next one is embedded. `unembedded` tells whether rows were stored without a vector.
    """

    def __init__(
        self,
        spool: Spool,
        home: Home,
        database: Database,
        settings: Settings,
        errands: BackgroundExecutor,
        tally: Tally,
    ) -> None:
        self._spool, self._home, self._database, self._settings = spool, home, database, settings
        self._errands, self._tally = errands, tally
        self._flights: deque[_Flight] = deque()
        self._orphans: Iterator[OrphanSpool] | None = None
        self._adopted: list[OrphanSpool] = []
        self._adopt_at = 0.0
        self._own_next = False
        self._held: list[Record] = []
        self._said: OrderedDict[tuple[str, str], str] = OrderedDict()
        self.unembedded = False

    @property
    def adopted_pending(self) -> int:
        """Events of dead processes that were taken and are not settled yet."""
        return sum(adopted.pending for adopted in list(self._adopted))

    @property
    def adopting(self) -> bool:
        """Whether what dead processes left has not been looked for yet, or is not settled."""
        looking = self._adopt_at == 0.0 or self._orphans is not None
        return looking or any(not adopted.finished for adopted in list(self._adopted))

    def step(self, embedder: Embedder | None) -> bool:
        """Settle one batch; False when there is nothing more to do for now.

        Raises Unavailable or SchemaNotApplied when it must be tried again later, OSError when a bad event cannot be set
        aside; nothing is lost or repeated by calling again.
        """
        self._adopt()
        self._board(embedder)
        if not self._flights:
            self._tally.notify()
            # What waited for the spool of a dead process can go now.
            return self._orphans is not None or bool(self._held)
        flight = self._flights[0]
        try:
            self._settle(flight, embedder)
        except (PgvectorError, OSError):
            raise
        except Exception:
            self._count_unexpected(flight)
            raise
        self._flights.popleft()
        self._tally.add(**flight.became)
        flight.source.acknowledge(flight.taken)
        self._tally.notify()
        return True

    def _settle(self, flight: _Flight, embedder: Embedder | None) -> None:
        if not flight.ready:
            self._plan(flight, embedder)
        while flight.rejected:
            self._set_aside(flight, *flight.rejected[0])
            flight.rejected.popleft()
        self._collect_vectors(flight)
        self._write(flight)

    def _count_unexpected(self, flight: _Flight) -> None:
        """After some unforeseen errors the batch goes on singly, and an event that still fails is set aside: it must
        not block the queue for ever.
        """
        flight.unexpected += 1
        if flight.unexpected < UNEXPECTED_MAX:
            return
        flight.unexpected = 0
        if not flight.ready:
            flight.rejected.append((flight.taken[flight.looked_at], UNFORESEEN))
            flight.looked_at += 1
        elif flight.part_max == 1 and flight.planned:
            self._set_aside_event(flight, flight.planned[0].event, UNFORESEEN)
            del flight.planned[0]
        flight.part_max = 1

    def let_go(self) -> None:
        """Leave everything that is not acknowledged to the next run, here or in another process."""
        self._flights.clear()
        self._held = []
        self._tally.add(adopted=-self.adopted_pending)
        while self._adopted:
            self._adopted.pop().close()
        self._orphans, self._adopt_at = None, 0.0
        self._spool.rewind()

    def abandon(self) -> None:
        """Let go of the inherited locks in a forked child, so that the parent alone holds them."""
        for adopted in self._adopted:
            adopted.abandon()

    def _adopt(self) -> None:
        """Hold a few spools of dead processes at a time: each takes a descriptor of the agent's process."""
        for adopted in [adopted for adopted in self._adopted if adopted.finished]:
            self._adopted.remove(adopted)
            adopted.close()
        if self._orphans is None and time.monotonic() >= self._adopt_at:
            self._orphans = orphans(self._home.spool)
            self._adopt_at = time.monotonic() + self._settings.adopt_interval_s
        while self._orphans is not None and len(self._adopted) < ADOPTED_MAX:
            orphan = next(self._orphans, None)
            if orphan is None:
                self._orphans = None
            else:
                log.info("adopting the spool of a process that died: %s", orphan.folder and orphan.folder.name)
                self._adopted.append(orphan)

    def _board(self, embedder: Embedder | None) -> None:
        """Take batches until enough are on their way, from our own spool and those of dead processes by turns."""
        while len(self._flights) < FLIGHTS_MAX:
            self._own_next = not self._own_next
            first, second = (self._own, self._foreign) if self._own_next else (self._foreign, self._own)
            flight = first() or second()
            if flight is None:
                return
            self._flights.append(flight)
            self._plan(flight, embedder)

    def _own(self) -> _Flight | None:
        # Only a turn may overtake what a dead process left: a change of an entry, or the end of a session, depends on
        # the events before it.
        taken = self._held or self._spool.take(self._settings.batch_max)
        free = list(takewhile(_stands_alone, taken)) if self._adopted else taken
        self._held = taken[len(free) :]
        return _Flight(self._spool, free) if free else None

    def _foreign(self) -> _Flight | None:
        for adopted in self._adopted:
            taken = adopted.take(self._settings.batch_max)
            if taken:
                self._tally.add(adopted=len(taken))
                return _Flight(adopted, taken)
        return None

    def _plan(self, flight: _Flight, embedder: Embedder | None) -> None:
        # Each event is noted as it is done, so that an unforeseen error is known by the one it met.
        for item in unhurried(flight.taken[flight.looked_at :]):
            try:
                if item.event is None:
                    raise BadEvent("the record in the spool is damaged")
                event = self._home.person_key.filed(prepare(item.event, self._settings))
            except BadEvent as error:
                flight.rejected.append((item, str(error)))
            except (TypeError, ValueError, AttributeError, RecursionError) as error:
                reason = f"its values are not of the expected kind ({type(error).__name__})"
                flight.rejected.append((item, reason))
            else:
                found = passages(event, self._answered(event))
                flight.planned.append(rows.Planned(event, found, (None,) * len(found)))
            flight.looked_at += 1
        flight.ready = True
        self._embed(flight, embedder)

    def _answered(self, event: Event) -> str:
        """What was said last in the session of a turn, as far as this process knows."""
        if not isinstance(event, TurnTaken):
            return ""
        key = (event.theme, event.session_id)
        before = self._said.pop(key, "")
        self._said[key] = (event.assistant or event.user)[:CONTEXT_CHARS_MAX]
        if len(self._said) > SESSIONS_REMEMBERED_MAX:
            self._said.popitem(last=False)
        return before

    def _embed(self, flight: _Flight, embedder: Embedder | None) -> None:
        """Start embedding the batch, unless that would keep its rows waiting: then they are stored first."""
        texts = [passage.embedded for planned in flight.planned for passage in planned.passages if self._short(passage)]
        wait_s = self._settings.embed_wait_s
        if embedder is None or not self._settings.embed_on_write or not texts:
            return
        if embedder.seconds_per_text * len(texts) > wait_s:
            return
        flight.embed_by = time.monotonic() + 2 * wait_s
        flight.vectors = self._errands.submit(embedder.embed_passages, texts, 2 * wait_s)

    def _collect_vectors(self, flight: _Flight) -> None:
        future, flight.vectors = flight.vectors, None
        if future is None:
            return
        try:
            vectors = iter(future.result(timeout=max(0.0, flight.embed_by - time.monotonic())))
        except (Unavailable, Refused, FutureTimeout) as error:
            log.info("stored without vectors, which follow later: %s", str(error) or "the embedder is slow")
            return
        for index, planned in enumerate(flight.planned):
            own = tuple(next(vectors) if self._short(passage) else None for passage in planned.passages)
            flight.planned[index] = replace(planned, vectors=own)

    def _short(self, passage: Passage) -> bool:
        """Whether one vector is all it needs. A row of many pieces is stored first, and is then for the healer."""
        return not passage.pieces(self._settings)

    def _write(self, flight: _Flight) -> None:
        """Write the batch; when Postgres refuses it, in halves, until the bad event stands alone and is set aside.

        What is too slow as a whole is tried in halves at the next attempt: it may only have waited for a lock.
        """
        size = flight.part_max
        while flight.planned:
            part = flight.planned[:size]
            try:
                fresh = self._apply(part)
            except TooSlow:
                flight.part_max = max(1, len(part) // 2)
                raise
            except BadEvent as error:
                if len(part) > 1:
                    size = len(part) // 2
                    continue
                if any(part[0].vectors):
                    # The vectors may be what does not fit; then those of the whole batch do not.
                    flight.planned = [_without_vectors(planned) for planned in flight.planned]
                    continue
                self._set_aside_event(flight, part[0].event, str(error))
            else:
                flight.became.update(applied=fresh, already_there=len(part) - fresh)
                self.unembedded |= any(None in planned.vectors for planned in part)
            del flight.planned[: len(part)]
            size = flight.part_max

    def _apply(self, part: list[rows.Planned]) -> int:
        limits = self._settings.connect_timeout_s, self._settings.statement_timeout_s
        with self._database.transaction(*limits) as connection:
            return rows.apply(connection, part)

    def _set_aside(self, flight: _Flight, item: Record, reason: str) -> None:
        if item.event is not None:
            self._set_aside_event(flight, item.event, reason)
            return
        folder = flight.source.folder
        name = f"damaged-{folder.name if folder else 'own'}-{item.position.segment}-{item.position.offset}"
        self._keep(flight, name, reason, item.raw.decode("latin-1"))

    def _set_aside_event(self, flight: _Flight, event: Event, reason: str) -> None:
        self._keep(flight, event.id, reason, encode(event).decode("ascii"))

    def _keep(self, flight: _Flight, name: str, reason: str, text: str) -> None:
        if not self._home.set_aside(name, reason, text):
            raise OSError(f"{self._home.aside_folder} cannot be written or is full: free it, nothing is lost meanwhile")
        log.warning("an event was set aside: %s; run: hermes-pgvector doctor", reason)
        flight.became.update(set_aside=1)


def _stands_alone(item: Record) -> bool:
    return item.event is None or isinstance(item.event, TurnTaken | Delegated)


def _without_vectors(planned: rows.Planned) -> rows.Planned:
    return replace(planned, vectors=(None,) * len(planned.vectors))
