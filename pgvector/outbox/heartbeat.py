"""The signs of life that a process leaves beside its spool, for whoever looks from outside."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..files import overwrite
from ..model import Counters, now

log = logging.getLogger("hermes.pgvector")

FILE = "state.json"
ADOPTER = "adopter"
WRITE_INTERVAL_S = 1.0
HEARTBEAT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How the memory of one process fares, as its writer's thread saw it at `at`.

    `progress` is when events were last settled, or when none was waiting. `healed` counts rows that got their vector
    later, by this process.
    """

    counters: Counters
    pid: int = field(default_factory=os.getpid)
    started: datetime = field(default_factory=now)
    at: datetime = field(default_factory=now)
    progress: datetime = field(default_factory=now)
    last_success: datetime | None = None
    failing_since: datetime | None = None
    problem: str = ""
    healed: int = 0


def leave(folder: Path, signs: Heartbeat) -> None:
    """Replace the signs in the folder of a process. Raises OSError."""
    overwrite(folder / FILE, json.dumps(asdict(signs), default=datetime.isoformat))


def read(folder: Path) -> Heartbeat | None:
    """The signs in the folder of a process; None when there are none, or none that can be read."""
    try:
        values: dict[str, Any] = json.loads((folder / FILE).read_text(encoding="ascii"))
        for name in ("started", "at", "progress", "last_success", "failing_since"):
            values[name] = values[name] and datetime.fromisoformat(values[name])
        return Heartbeat(**{**values, "counters": Counters(**values["counters"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def take_over(folder: Path) -> None:
    """Put the name of this process into a folder that it adopts, in place of the signs of the dead one."""
    with contextlib.suppress(OSError):
        (folder / FILE).unlink(missing_ok=True)
        overwrite(folder / ADOPTER, str(os.getpid()))


def adopter(folder: Path) -> int | None:
    """The id of the process that adopted a folder last; None when none did."""
    try:
        return int((folder / ADOPTER).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


class HeartbeatWriter:
    """Keeps the signs of this process fresh, and knows when its writer does not get on.

    `beat` is for the writer's thread, the rest for any. `folder` names where to leave the signs; None: nowhere.
    """

    def __init__(self, folder: Callable[[], Path | None], stuck_after_s: float) -> None:
        self._folder, self._stuck_after_s = folder, stuck_after_s
        self._last: Heartbeat | None = None
        self._started = self._progress = now()
        self._settled = 0
        self._write_at = 0.0
        self._beat_by = 0.0
        self._warned = False
        self._overdue_at = math.inf

    @property
    def overdue(self) -> bool:
        """Whether nothing was settled, and no reason given, for longer than a writer may take while events wait."""
        return time.monotonic() >= self._overdue_at

    def rise(self) -> None:
        """The writer's thread begins: count its time from here."""
        self._overdue_at = time.monotonic() + self._stuck_after_s

    def warn(self, waiting: int) -> None:
        """Say once, until the writer gets on again, that it does not."""
        if not self._warned:
            self._warned = True
            log.warning(
                "the writer is stuck: nothing was stored for more than %g s, and %d events wait; "
                "they are safe in the spool; see hermes-pgvector doctor",
                self._stuck_after_s,
                waiting,
            )

    def beat(self, signs: Heartbeat) -> None:
        """Note how things stand, and tell it to the outside if it is new or was last told some time ago."""
        counts, moment = signs.counters, time.monotonic()
        settled = counts.applied + counts.already_there + counts.set_aside
        if counts.pending == 0 or settled != self._settled:
            self._progress, self._settled = signs.at, settled
            self._get_on()
        elif signs.problem:
            self._get_on()
        signs = replace(signs, started=self._started, progress=self._progress)
        if moment < self._write_at or (moment < self._beat_by and self._last and not _news(self._last, signs)):
            return
        self._last, self._write_at, self._beat_by = signs, moment + WRITE_INTERVAL_S, moment + HEARTBEAT_S
        with contextlib.suppress(OSError):
            folder = self._folder()
            if folder is not None:
                leave(folder, signs)

    def _get_on(self) -> None:
        self._overdue_at = time.monotonic() + self._stuck_after_s
        if self._warned:
            self._warned = False
            log.warning("the writer is not stuck any more")


def _news(before: Heartbeat, signs: Heartbeat) -> bool:
    """Whether more than times has changed; that rounds go well without anything to do is no news."""
    return replace(before, at=signs.at, progress=signs.progress, last_success=signs.last_success) != signs
