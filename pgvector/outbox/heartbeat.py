"""What the writer of a process did, and its heartbeat file beside the spool, for `status` and `doctor`."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import Condition
from ..files import overwrite
from ..model import now

log = logging.getLogger("hermes.pgvector")

FILE = "state.json"
NEW_OWNER_FILE = "adopter"
WRITE_INTERVAL_S = 1.0
HEARTBEAT_S = 10.0
UNEXPECTED = "nothing can be stored; the log says why"


@dataclass(frozen=True, slots=True)
class Counters:
    """What happened to the events of one process. While no event is on its way, two equations hold:

    offered = accepted + refused, and accepted + adopted = applied + already_there + pending + set_aside.
    `adopted` are events of orphan spools, `set_aside` are dead letters. Events that a runtime leaves in its spool when
    it closes are not counted.
    """

    offered: int = 0
    accepted: int = 0
    refused: int = 0
    adopted: int = 0
    applied: int = 0
    already_there: int = 0
    set_aside: int = 0
    pending: int = 0

    @property
    def balanced(self) -> bool:
        """Whether both equations hold."""
        settled = self.applied + self.already_there + self.set_aside
        return self.offered == self.accepted + self.refused and self.accepted + self.adopted == settled + self.pending


@dataclass(frozen=True, slots=True)
class Health:
    """Whether the writer works, and if it does not, since when and why. `problem` is empty while it works."""

    last_success: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""


@dataclass(frozen=True)
class Embedding:
    """Rows that a process gave a vector after they were stored, how many a second, and why others wait, else empty."""

    healed: int = 0
    healed_per_s: float = 0.0
    embedder_problem: str = ""


@dataclass(frozen=True)
class Recalls:
    """Where a standby is set: recalls that it and the primary answered, and why it is not read from, else empty."""

    recalls_by_standby: int = 0
    recalls_by_primary: int = 0
    standby_problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Health, Embedding, Recalls):
    """Counters and health of a process at `at`, as seen by its writer's thread.

    `progress` is the last time at which events were settled or none was pending.
    """

    counters: Counters
    pid: int = field(default_factory=os.getpid)
    started: datetime = field(default_factory=now)
    at: datetime = field(default_factory=now)
    progress: datetime = field(default_factory=now)


def write(folder: Path, heartbeat: Heartbeat) -> None:
    """Replace the heartbeat in the folder of a process. Raises OSError."""
    path, text = folder / FILE, json.dumps(asdict(heartbeat), default=datetime.isoformat)
    try:
        overwrite(path, text)
    except OSError:
        # A full disk has no block for a new file, and those of the old one are there.
        with path.open("r+b") as file:
            file.write(text.ljust(os.fstat(file.fileno()).st_size).encode("ascii"))


def read(folder: Path) -> Heartbeat | None:
    """The heartbeat in the folder of a process; None when there is none, or it cannot be read."""
    try:
        values: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="ascii"))
        for name in ("started", "at", "progress", "last_success", "failing_since"):
            values[name] = values[name] and datetime.fromisoformat(values[name])
        return Heartbeat(**{**values, "counters": Counters(**values["counters"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def take_over(folder: Path) -> None:
    """Put the id of this process into the folder of a dead one, in place of its heartbeat."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
        overwrite(folder / NEW_OWNER_FILE, str(os.getpid()))


def new_owner(folder: Path) -> int | None:
    """The id of the process that took over a folder last; None when none did."""
    try:
        return int((folder / NEW_OWNER_FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


class WriterStatus:
    """What a writer did and whether it works: for the threads of its process, and as its heartbeat for other processes.

    `counts` are without the events that the spools count: accepted and pending ones. Safe for any thread, but `beat` is
    for the writer's. Call `notify` after a change that others wait for.
    """

    def __init__(self, stuck_after_s: float) -> None:
        self.counts, self.health = Counters(), Health()
        self._public_problem = ""
        self._refusing_since: datetime | None = None
        self._changed = threading.Condition()
        self._stuck_after_s = stuck_after_s
        self._started = self._progress = now()
        self._settled = 0
        self._last: object = None
        self._written_at = self._overdue_at = math.inf
        self._warned = False

    def add(self, **numbers: int) -> None:
        """Add to counters by name."""
        with self._changed:
            sums = {name: getattr(self.counts, name) + number for name, number in numbers.items()}
            self.counts = replace(self.counts, **sums)

    def notify(self) -> None:
        """Wake the threads in `wait_until`."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `done()` is true, for at most `timeout_s` seconds; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(done, timeout_s)

    def succeeded(self) -> None:
        """Note a round of the writer without an error."""
        if self.health.problem:
            log.warning("events are stored again")
        self.health = Health(last_success=now())

    def failed(self, problem: str, public: str) -> None:
        """Note a failed round; the first of several is logged. A model may read `public`, which may be empty."""
        if not self.health.problem:
            log.warning("events stay in the spool for now: %s", problem)
        self._public_problem = public
        self.health = replace(self.health, failing_since=self.health.failing_since or now(), problem=problem)

    def refused(self, *, refused: bool) -> None:
        """Note whether the spool refused the last event."""
        if refused != bool(self._refusing_since):
            self._refusing_since = now() if refused else None

    @property
    def condition(self) -> Condition:
        """Whether events are stored."""
        health = self.health
        if health.problem:
            return Condition(self._public_problem or UNEXPECTED, health.failing_since)
        if self._warned:
            return Condition("the writer is stuck", self._progress)
        return Condition(works=health.last_success is not None)

    @property
    def spool_condition(self) -> Condition:
        """Whether new events are kept."""
        since = self._refusing_since
        return Condition("the outbox is full or cannot be written", since) if since else Condition(works=True)

    def start(self) -> None:
        """Count the time without progress from now: the writer's thread starts."""
        self._overdue_at = time.monotonic() + self._stuck_after_s

    def warn_if_stuck(self, pending: int) -> None:
        """Log, once until there is progress, that `stuck_after_s` seconds brought neither progress nor a problem."""
        if pending and not self._warned and time.monotonic() >= self._overdue_at:
            self._warned = True
            log.warning(
                "the writer is stuck: nothing was stored for more than %g s, and %d events are pending; "
                "they are safe in the spool; see hermes-pgvector doctor",
                self._stuck_after_s,
                pending,
            )

    def beat(self, folder: Callable[[], Path | None], counts: Counters, *more: Embedding | Recalls) -> None:
        """Note progress; write the heartbeat when it has changed or was last written `HEARTBEAT_S` seconds ago.

        `folder()` is where to write it; None: nowhere.
        """
        health, settled = self.health, counts.applied + counts.already_there + counts.set_aside
        progress = counts.pending == 0 or settled != self._settled
        if progress:
            self._progress, self._settled = now(), settled
        if progress or health.problem:
            self.start()
            if self._warned:
                self._warned = False
                log.warning("the writer is not stuck any more")
        state = counts, health.failing_since, health.problem, more
        interval_s = HEARTBEAT_S if state == self._last else WRITE_INTERVAL_S
        if self._last is not None and time.monotonic() < self._written_at + interval_s:
            return
        self._last, self._written_at = state, time.monotonic()
        with contextlib.suppress(OSError):
            if path := folder():
                values = {name: value for part in (health, *more) for name, value in asdict(part).items()}
                write(path, Heartbeat(counters=counts, started=self._started, progress=self._progress, **values))
