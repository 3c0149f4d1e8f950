"""The embedder of a process and whether its vectors fit those in the database."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from pathlib import Path
from typing import Any

from ..errors import EmbedderUnavailable, Refused, SettingsError, Unavailable
from ..files import make_private, overwrite
from ..model import WORDS_ONLY
from ..settings import Settings
from ..store.connection.database import Database
from . import factory
from .calibration import noise_floor
from .protocol import Embedder

log = logging.getLogger("hermes.pgvector")

DEFAULT_DIMENSIONS = 768
PROBE_S_MAX = 3.0
REMATCH_S = 60.0
CALIBRATION_WAIT_S_MIN = 30.0
CALIBRATION_WAIT_S_MAX = 3600.0


class EmbedderCompatibility:
    """Makes the embedder on first use and matches it with the database. Safe for any thread; `match` is for one."""

    def __init__(self, settings: Settings, state: Path, database: Database) -> None:
        """`state` is the folder of the home in which the measured floor of each model is cached."""
        self._settings, self._database = settings, database
        self._calibration = state / "calibration.json"
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._none_because = ""
        self._misfit = "the memory is starting"
        self._unheard = self._claimed = False
        self._rematch_at = 0.0
        self._measured_floor: float | None = None
        self._calibration_at = 0.0
        self._calibration_wait_s = CALIBRATION_WAIT_S_MIN

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the settings; None when there is none."""
        with self._lock:
            if self._embedder is None and not self._none_because:
                try:
                    self._embedder = factory.build(self._settings)
                except SettingsError as error:
                    log.warning("recall is by words only: %s", error)
                    self._none_because = f"{WORDS_ONLY}: {error}"
            return self._embedder

    def usable(self) -> Embedder | str:
        """The embedder whose vectors fit the database, or the reason why meaning is not searched."""
        return self._misfit or self.embedder or self._none_because

    @property
    def undecided(self) -> bool:
        """Whether to match again: the embedder has not answered yet, or it is a while since it did not fit."""
        if not self._misfit or self._embedder is None:
            return False
        return self._silent or time.monotonic() >= self._rematch_at

    @property
    def floor(self) -> float | None:
        """The similarity below which a row has nothing to do with a query; None until it is known."""
        chosen = self._settings.min_similarity
        return self._measured_floor if chosen is None else chosen

    def wanted_dimensions(self) -> int:
        """The vector length for a database that this process creates itself.

        Raises EmbedderUnavailable when only an embedder that is silent knows it.
        """
        embedder = self.embedder
        if self._database.server is None or self._database.state is not None or embedder is None:
            return DEFAULT_DIMENSIONS
        if embedder.dimensions is None:
            try:
                embedder.embed_query("dimensions", PROBE_S_MAX)
            except EmbedderUnavailable as error:
                raise EmbedderUnavailable(
                    f"the vector length of {embedder.model} is unknown until it answers ({error}); "
                    "set embed_dimensions to go on without it"
                ) from None
        return embedder.dimensions or DEFAULT_DIMENSIONS

    def match(self, stored: int) -> bool:
        """Compare with the database, whose vectors have `stored` numbers; a new reason not to fit is logged once."""
        if self._misfit and self._settings.embed_url and not self._silent:
            # An endpoint may serve another model by now, and the database may hold vectors of another.
            self.close()
        misfit = self._reason(stored)
        if misfit and misfit != self._misfit and not self._silent:
            log.warning("%s", misfit)
        self._misfit, self._rematch_at = misfit, time.monotonic() + REMATCH_S
        return not misfit

    def calibration_due(self) -> bool:
        """Whether to call `calibrate` now: the embedder fits and its floor is not known.

        True claims the try: the next one is due only after a while, which doubles from 30 seconds to an hour.
        """
        now = time.monotonic()
        with self._lock:
            if self._misfit or self.floor is not None or self._embedder is None or now < self._calibration_at:
                return False
            self._calibration_at = now + self._calibration_wait_s
            self._calibration_wait_s = min(2 * self._calibration_wait_s, CALIBRATION_WAIT_S_MAX)
            return True

    def calibrate(self) -> None:
        """Learn the floor of this model: from the home, else by measuring it. Without an answer it stays unknown."""
        embedder = self.embedder
        if embedder is None or self._settings.min_similarity is not None:
            return
        known = self._cached_floors()
        if isinstance(known.get(embedder.model), float):
            self._measured_floor = known[embedder.model]
            return
        try:
            self._measured_floor = noise_floor(embedder, self._settings.embed_timeout_s)
        except (Unavailable, Refused) as error:
            log.info("ambient recall has no floor yet: %s", error)
            return
        # The floor is measured again by the next process when the file cannot be written.
        with contextlib.suppress(OSError):
            make_private(self._calibration.parent)
            overwrite(self._calibration, json.dumps({**known, embedder.model: self._measured_floor}))

    def _cached_floors(self) -> dict[str, Any]:
        try:
            floors = json.loads(self._calibration.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return floors if isinstance(floors, dict) else {}

    def close(self) -> None:
        """Close the embedder; the next use makes another."""
        with self._lock:
            embedder, self._embedder = self._embedder, None
        if embedder is not None:
            embedder.close()

    @property
    def _silent(self) -> bool:
        return self._embedder is not None and (self._unheard or self._embedder.dimensions is None)

    @property
    def _unbound(self) -> bool:
        """Whether the database may still wait for its model: one that never answered must not become it."""
        state = self._database.state
        return not self._claimed and (state is None or state.embedding_model is None)

    def _reason(self, stored: int) -> str:
        embedder = self.embedder
        if embedder is None:
            return self._none_because
        self._unheard = False
        if embedder.dimensions is None or self._unbound:
            try:
                embedder.embed_query("dimensions", PROBE_S_MAX)
            except (Unavailable, Refused) as error:
                self._unheard = isinstance(error, Unavailable)
                return f"{WORDS_ONLY}: {error}"
        if embedder.dimensions != stored:
            return (
                f"{WORDS_ONLY}: {embedder.model} makes vectors of {embedder.dimensions} numbers, the database holds "
                f"vectors of {stored}; set embed_model and embed_url to the model that made them"
            )
        model = self._database.claim_model(embedder.model)
        self._claimed = True
        if model != embedder.model:
            return (
                f"{WORDS_ONLY}: the database holds vectors of {model}, this process uses {embedder.model}; "
                "use the same model"
            )
        return ""
