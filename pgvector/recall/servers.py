"""The servers that recalls are read from: a standby that is far enough, where there is one, else the primary."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Literal, TypeAlias

from ..background import BackgroundExecutor
from ..errors import DatabaseUnavailable, ModelChanged, PgvectorError, SchemaNotApplied, StandbyBehind, Unavailable
from ..outbox.heartbeat import Recalls
from ..settings import Settings
from ..store.connection.database import Database
from ..store.connection.standby import Standby
from .deadline import Deadline

log = logging.getLogger("hermes.pgvector")

# Share of the time left for the standby; the rest is for the primary.
STANDBY_SHARE = 0.6
AWAY_S_FIRST, AWAY_S_MAX = 0.5, 30.0
STALE = "the database does not answer: this is from a standby, which may lack what was stored last"

Search: TypeAlias = Callable[[Database, Deadline], None]


class Servers:
    """Has one of the servers answer a recall. Safe for any thread.

    A standby that fails is not asked again before a trial in the background has succeeded, so that it costs one recall
    some of its time. The pause before a trial grows from AWAY_S_FIRST to AWAY_S_MAX seconds, until it has answered a
    recall. `recalls` tells who has answered.
    """

    def __init__(self, primary: Database, settings: Settings) -> None:
        self._primary = primary
        self._standby = Standby(settings, primary) if settings.recall_dsn.get_secret_value() else None
        self._lock = threading.Lock()
        self._background = BackgroundExecutor("hermes-pgvector-standby", 1)
        self._trial_at = self._pause_s = 0.0
        self._behind = False
        self.recalls = Recalls()

    def ask(self, search: Search, deadline: Deadline) -> tuple[str, ...]:
        """Have a server answer by `search`; returns why the answer may lack something.

        Raises what `search` raises for the primary. While the primary does not answer, the standby does, however far
        it is behind.
        """
        if self._standby is None:
            search(self._primary, deadline)
            return ()
        doubted = self._primary.doubted
        if self._standby_answers(self._standby, search, deadline):
            return (STALE,) if doubted else ()
        try:
            search(self._primary, deadline)
        except DatabaseUnavailable:
            self._primary.doubted = True
            if doubted or not self._standby_answers(self._standby, search, deadline):
                raise
            return (STALE,)
        self._count("recalls_by_primary")
        return ()

    def close(self) -> None:
        """Close the connections to the standby."""
        if self._standby is not None:
            self._standby.close()

    def _standby_answers(self, standby: Standby, search: Search, deadline: Deadline) -> bool:
        if self._is_away():
            self._try_soon(standby)
            return False
        try:
            search(standby, Deadline(STANDBY_SHARE * deadline.left_s))
        except (Unavailable, SchemaNotApplied) as error:
            self._failed(error)
            return False
        self._works()
        self._count("recalls_by_standby")
        return True

    def _is_away(self) -> bool:
        """Whether only a trial may ask the standby. While the primary does not answer, a lag keeps no recall off it."""
        return self._trial_at > 0 and not (self._behind and self._primary.doubted)

    def _try_soon(self, standby: Standby) -> None:
        with self._lock:
            if not 0 < self._trial_at <= time.monotonic():
                return
            self._trial_at = inf  # while the trial runs
        self._background.submit(self._try, standby).add_done_callback(self._tried)

    def _try(self, standby: Standby) -> None:
        try:
            standby.try_out()
        except (Unavailable, SchemaNotApplied) as error:
            self._failed(error)

    def _tried(self, _: object) -> None:
        """End the trial, also where no thread could be started for it."""
        with self._lock:
            self._trial_at = 0.0 if self._trial_at == inf else self._trial_at

    def _failed(self, error: PgvectorError) -> None:
        problem, behind = str(error), isinstance(error, StandbyBehind)
        if isinstance(error, ModelChanged) or (behind and not problem):
            return
        with self._lock:
            self._behind = behind
            # Of recalls that fail together, the first one decides.
            if not 0 < self._trial_at < inf:
                self._pause_s = min(AWAY_S_MAX, self._pause_s * 2 or AWAY_S_FIRST)
                self._trial_at = time.monotonic() + self._pause_s
            began, self.recalls = not self.recalls.standby_problem, replace(self.recalls, standby_problem=problem)
        if began:
            log.warning("recalls ask the primary: the standby is not read from: %s", problem)

    def _works(self) -> None:
        if not self.recalls.standby_problem:
            return
        with self._lock:
            if self._is_away() or not self.recalls.standby_problem:
                return  # It answered a recall that had begun before another one failed: a trial decides.
            self._trial_at = self._pause_s = 0.0
            self.recalls = replace(self.recalls, standby_problem="")
        log.warning("recalls are read from the standby again")

    def _count(self, name: Literal["recalls_by_standby", "recalls_by_primary"]) -> None:
        with self._lock:
            self.recalls = replace(self.recalls, **{name: getattr(self.recalls, name) + 1})
