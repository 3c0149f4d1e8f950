"""Prepares database, person key and embedder before their first use, and again after a failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Literal, Protocol

from ..embedding.compatibility import EmbedderCompatibility
from ..embedding.protocol import Embedder
from ..settings import Settings
from ..store.connection.database import Connection, Database

FIRST_MATCH_S_MAX = 1.0


class _PersonKey(Protocol):
    def settle(self, agree: Callable[[str], str]) -> None: ...
    def met(self) -> Collection[str]: ...


class Readiness:
    """What the writer of a home needs before a batch. `reached` is set when the database was usable.

    `look` reads what others have changed. `in_background` runs a job on another thread. `refile` is such a job, for
    dead letters of persons that were met since. `over` notes the end of an outage. For the writer thread alone, but
    `reached` is for any thread.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        compatibility: EmbedderCompatibility,
        key: _PersonKey,
        look: Callable[[Connection], None],
        in_background: Callable[..., Future[None]],
        refile: Callable[[], None],
        over: Callable[[Literal["database"]], None],
    ) -> None:
        self.reached = threading.Event()
        self._settings, self._database, self._fit, self._key = settings, database, compatibility, key
        self._look, self._in_background, self._refile, self._over = look, in_background, refile, over
        self._matching: Future[Any] | None = None
        self._refile_at = 0.0

    def embedder(self, *, verify: bool) -> Embedder | None:
        """The embedder whose vectors fit the database; None when there is none now.

        The first time, and with `verify`, this connects, creates or verifies the schema, and matches person key and
        embedder. What is due in the background is started. Raises Unavailable or SchemaNotApplied.
        """
        database, fit, key = self._database, self._fit, self._key
        if verify or not self.reached.is_set():
            dimensions = database.prepare(fit.wanted_dimensions).dimensions
            key.settle(database.claim_person_key)
            timeout_s = self._settings.connect_timeout_s
            with database.connection(timeout_s, within_s=timeout_s, trusting=True) as connection:
                self._look(connection)
            database.doubted = False
            self._over("database")
            self._match(dimensions, FIRST_MATCH_S_MAX)
            self.reached.set()
        elif fit.undecided and database.state is not None:
            self._match(database.state.dimensions, 0.0)
        if fit.calibration_due():
            self._in_background(fit.calibrate)
        if time.monotonic() >= self._refile_at and key.met():
            self._refile_at = time.monotonic() + self._settings.adopt_interval_s
            self._in_background(self._refile)
        embedder = fit.usable()
        return None if isinstance(embedder, str) else embedder

    def _match(self, dimensions: int, wait_s: float) -> None:
        """Match the embedder in the background, because it may take seconds to answer; wait for it a little."""
        if self._matching is None or self._matching.done():
            self._matching = self._in_background(self._fit.match_if_possible, dimensions)
        with suppress(TimeoutError):
            self._matching.result(wait_s)
