"""The embedder of a process and the check that its vectors are compatible with the database."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import (
    Condition,
    DatabaseUnavailable,
    EmbedderUnavailable,
    Refused,
    SchemaNotApplied,
    SettingsError,
    Unavailable,
)
from ..files import make_private, overwrite
from ..model import WORDS_ONLY, now
from ..settings import Settings, load
from ..store.connection.database import Database
from . import factory
from .breaker import Breaker
from .calibration import SHARE_BELOW, noise_floor
from .probe import Probe
from .protocol import Embedder

log = logging.getLogger("hermes.pgvector")

DEFAULT_DIMENSIONS = 768
STARTING = "the memory is starting"
CHANGED = f"{WORDS_ONLY}: the database has changed to another embedding model, which this process looks for"
# The settings that another model needs.
EMBEDDER_SETTINGS = ("embed_url", "embed_model", "embed_api", "embed_key_env", "embed_dimensions")
REMATCH_S = 5.0
CALIBRATION_WAIT_S_MIN = 30.0
CALIBRATION_WAIT_S_MAX = 3600.0


class EmbedderCompatibility:
    """Makes the embedder on first use and compares it with the database.

    Safe for any thread, except that only one thread may call `match` and `match_if_possible`.
    """

    def __init__(self, settings: Settings, state: Path, database: Database, home: Path | None = None) -> None:
        """`state` is the folder of the home in which the measured floor of each model is cached.

        When the database has changed to another model, the settings of `home` are read again: they may name it now.
        """
        self._settings, self._database, self._home = settings, database, home
        self._calibration = state / "calibration.json"
        self._lock = threading.Lock()
        self._embedder: Embedder | None = None
        self._no_embedder_reason = ""
        self._held: str | None = None
        self._mismatch = STARTING
        self._mismatched_since: datetime | None = None
        self._unanswered, self._claimed = True, False
        self._rematch_at = 0.0
        self._probe = Probe(settings.embed_timeout_s)
        self._measured_floor: float | None = None
        self._calibration_at = 0.0
        self._calibration_wait_s = CALIBRATION_WAIT_S_MIN

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of the settings; None if the settings give none."""
        with self._lock:
            if self._embedder is None and not self._no_embedder_reason:
                try:
                    self._embedder = factory.build(self._settings, held=self._held)
                except SettingsError as error:
                    self._no_embedder_reason = f"{WORDS_ONLY}: {error}"
            return self._embedder

    def usable(self) -> Embedder | str:
        """The embedder if its vectors are compatible with the database, else the reason why vector search is off."""
        if self._database.held.outdated:
            return CHANGED
        return self._mismatch or self.embedder or self._no_embedder_reason

    @property
    def undecided(self) -> bool:
        """Whether to call `match` again: the embedder has not answered yet, the last mismatch is `REMATCH_S` ago, or
        the database has changed to another model.
        """
        if self._database.held.outdated:
            return True
        if not self._mismatch or self._embedder is None:
            return False
        return self._unanswered or time.monotonic() >= self._rematch_at

    def condition(self) -> Condition:
        """Whether questions get vectors. Settings without an embedder are a problem if stored rows have vectors."""
        mismatch, state = self._mismatch, self._database.state
        if not mismatch:
            with self._lock:
                return self._embedder.condition if isinstance(self._embedder, Breaker) else Condition()
        has_vectors = state is not None and bool(state.embedding_model)
        if mismatch == STARTING or (mismatch == self._no_embedder_reason and not has_vectors):
            return Condition()
        return Condition(mismatch, self._mismatched_since)

    @property
    def floor(self) -> float | None:
        """The similarity below which a row is unrelated to a query; None while it is unknown."""
        chosen = self._settings.min_similarity
        return self._measured_floor if chosen is None else chosen

    def wanted_dimensions(self) -> int:
        """The vector length for tables that this process creates.

        Raises EmbedderUnavailable if only the embedder knows it and does not answer.
        """
        embedder = self.embedder
        if embedder is None:
            return DEFAULT_DIMENSIONS
        if embedder.dimensions is None:
            try:
                self._probe.ask(embedder)
            except EmbedderUnavailable as error:
                raise EmbedderUnavailable(
                    f"the vector length of {embedder.model} is unknown until it answers ({error}); "
                    "set embed_dimensions to continue without it"
                ) from None
        return embedder.dimensions or DEFAULT_DIMENSIONS

    def match(self, stored: int, *, answered: bool = False) -> bool:
        """Whether the embedder is compatible with a database of `stored` dimensions. Logs a new mismatch once.

        An embedder whose model is new to the database is asked first whether it works, unless it has `answered` just
        now.
        """
        if self._database.held.outdated:
            stored, answered = self._database.refresh().dimensions, False
            self._measured_floor, self._calibration_at, self._claimed = None, 0.0, False
            self._calibration_wait_s = CALIBRATION_WAIT_S_MIN
        if self._mismatch and self._settings.embed_url and not self._unanswered:
            # Meanwhile the endpoint may serve another model, or the database may hold vectors of another one.
            self.close()
        mismatch = self._find_mismatch(stored, answered=answered)
        if mismatch and self._follow_saved():
            mismatch = self._find_mismatch(stored, answered=False)
        self._decide(mismatch)
        self._database.held.outdated, self._database.held.names = False, factory.named_model(self._settings)
        return not mismatch

    def match_if_possible(self, stored: int) -> None:
        """As `match`, but a database that the role may not ask is a mismatch, and one that is away decides nothing."""
        try:
            self.match(stored)
        except SchemaNotApplied as error:
            self._decide(f"{WORDS_ONLY}: {error}")
        except DatabaseUnavailable as error:
            log.info("the embedder is not compared with the database: %s", error)

    def _decide(self, mismatch: str) -> None:
        if mismatch and mismatch != self._mismatch and not self._unanswered:
            log.warning("%s", mismatch)
        self._mismatched_since = (self._mismatched_since or now()) if mismatch else None
        self._mismatch, self._rematch_at = mismatch, time.monotonic() + REMATCH_S

    def calibration_due(self) -> bool:
        """Whether to call `calibrate` now: the embedder is compatible and its floor is unknown.

        Each True starts a waiting time, doubling from 30 seconds to an hour, before the next True.
        """
        now = time.monotonic()
        with self._lock:
            if self._mismatch or self.floor is not None or self._embedder is None or now < self._calibration_at:
                return False
            self._calibration_at = now + self._calibration_wait_s
            self._calibration_wait_s = min(2 * self._calibration_wait_s, CALIBRATION_WAIT_S_MAX)
            return True

    def calibrate(self) -> None:
        """Read the floor of this model from the home, else measure it. Without an answer it stays unknown."""
        embedder = self.embedder
        if embedder is None:
            return
        known, key = self._cached_floors(), f"{embedder.model} at {SHARE_BELOW}"
        if isinstance(known.get(key), float):
            self._measured_floor = known[key]
            return
        try:
            self._measured_floor = noise_floor(embedder, self._settings.embed_timeout_s)
        except (Unavailable, Refused) as error:
            log.info("the similarity floor of the recall before a turn is still unknown: %s", error)
            return
        # The floor is measured again by the next process when the file cannot be written.
        with contextlib.suppress(OSError):
            make_private(self._calibration.parent)
            overwrite(self._calibration, json.dumps({**known, key: self._measured_floor}))

    def _cached_floors(self) -> dict[str, Any]:
        try:
            floors = json.loads(self._calibration.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return floors if isinstance(floors, dict) else {}

    def close(self) -> None:
        """Close the embedder. The next use makes a new one."""
        with self._lock:
            embedder, self._embedder = self._embedder, None
        if embedder is not None:
            embedder.close()

    def _find_mismatch(self, stored: int, *, answered: bool) -> str:
        self._unanswered = False
        state = self._database.state
        self._follow(state.embedding_model if state else None)
        embedder = self.embedder
        if embedder is None:
            return self._no_embedder_reason
        # Only a model that has answered may become the model of the database.
        if embedder.dimensions is None or not (answered or self._claimed or (state and state.embedding_model)):
            try:
                self._probe.ask(embedder)
            except (Unavailable, Refused) as error:
                self._unanswered = isinstance(error, Unavailable) or embedder.dimensions is None
                return f"{WORDS_ONLY}: {error}"
        if embedder.dimensions != stored:
            has, cure = f"holds vectors of {stored}", "set embed_model and embed_url to the model that made them"
            if state is None or not state.embedding_model:
                has, cure = f"is made for vectors of {stored}, and has none", "hermes-pgvector doctor says what to do"
            return (
                f"{WORDS_ONLY}: {embedder.model} makes vectors of {embedder.dimensions} numbers, the database {has}; "
                f"{cure}"
            )
        model = self._database.claim_model(embedder.model)
        self._claimed = True
        if self._follow(model):
            return self._find_mismatch(stored, answered=answered)
        if model != embedder.model:
            return (
                f"{WORDS_ONLY}: the database holds vectors of {model}, this process uses {embedder.model}; "
                "use the same model"
            )
        return ""

    def _follow(self, held: str | None) -> bool:
        """Change to the bundled model whose vectors the database holds, if the settings leave it open."""
        if self._settings.embed_url or held is None:
            return False
        with self._lock:
            before, self._held = factory.bundled_model(self._settings, self._held), held
            if factory.bundled_model(self._settings, held) == before:
                return False
            self._no_embedder_reason = ""
        self.close()
        return True

    def _follow_saved(self) -> bool:
        """Change to the embedder that the home's settings name by now, if its model is that of the database."""
        state = self._database.state
        if self._home is None or state is None or state.embedding_model is None:
            return False
        try:
            saved = load(self._home)
        except SettingsError as error:
            log.info("the settings cannot be read again: %s", error)
            return False
        values = {name: getattr(saved, name) for name in EMBEDDER_SETTINGS}
        found = self._settings.model_copy(update=values)
        if found == self._settings or factory.model_of(found, state.embedding_model) != state.embedding_model:
            return False
        with self._lock:
            self._settings, self._no_embedder_reason = found, ""
        self.close()
        log.warning("the database has changed to %s, and so does this process", state.embedding_model)
        return True
