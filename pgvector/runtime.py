"""One runtime per process and home: pool, embedder, spool and writer, shared by every provider object that asks.

Hosts make a provider per request and may never shut it down, so providers hold nothing of their own. A runtime is
counted: the last release drains and closes it, and a leaked provider costs a number, not a thread.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import mirror
from .embedding import factory
from .embedding.calibration import noise_floor
from .errands import Errands
from .errors import BadArgument, EmbedderUnavailable, PgvectorError, Refused, SettingsError, Unavailable
from .home import Home
from .model import TARGETS, Add, Event, Recall, RecallRequest, Remove, Replace, Scope, Target
from .ports import Embedder
from .recall import Recaller
from .settings import Settings
from .spool import open_spool
from .store.postgres import Database
from .themes import Identity, allowed, home_theme, readable, theme_of
from .writer import AsyncWriter

log = logging.getLogger("hermes.pgvector")

DEFAULT_DIMENSIONS = 768
PROBE_S_MAX = 3.0
FLUSH_SHARE = 0.2
READY_SHARE = 0.5
STRANGERS_MAX = 100


class Runtime:
    """Everything one home needs in this process. Safe for any thread; the constructor does no I/O beyond path maths.

    Raises SettingsError when there is no database to use.
    """

    def __init__(self, settings: Settings, hermes_home: str | os.PathLike[str]) -> None:
        self.settings = settings
        self.home = Home(hermes_home, settings.spool_dir)
        self.database = Database(settings, self.home.path)
        self._spool = open_spool(
            self.home.spool,
            bytes_max=settings.spool_max_mb << 20,
            window_max=settings.write_queue_maxsize,
            fsync=settings.spool_fsync,
        )
        self.writer = AsyncWriter(self._spool, self.home, self.database, self._make_ready, settings)
        self._recaller = Recaller(self.database, self.fitting_embedder, settings)
        self._errands = Errands("hermes-pgvector-errand", 1)
        self._person_key = b""
        self._strangers: set[str] = set()
        self._files_seen: dict[Target, tuple[str, ...]] = {}
        self._begin()

    def _begin(self) -> None:
        self._ready = threading.Event()
        self._embedder_lock = threading.Lock()
        self._fit: str = "the memory is starting"
        self._floor: float | None = None
        self._embedder: Embedder | None = None
        self._embedder_problem = ""

    @property
    def embedder(self) -> Embedder | None:
        """The embedder of these settings, made on first use; None when there is none."""
        with self._embedder_lock:
            if self._embedder is None and not self._embedder_problem:
                try:
                    self._embedder = factory.build(self.settings)
                except SettingsError as error:
                    log.warning("recall is by words only: %s", error)
                    self._embedder_problem = f"by words only: {error}"
            return self._embedder

    # Writing

    def accept(self, event: Event) -> bool:
        """Take an event for good; False, counted, when the spool refuses it. Returns in microseconds.

        An event of a theme that is not allowed is set aside for the operator: a typo must not become a theme.
        """
        if allowed(event.theme, self.settings.allowed_themes):
            return self.writer.accept(event)
        if event.theme not in self._strangers:
            log.warning(
                "theme %r is not in allowed_themes: its events are set aside; see hermes-pgvector doctor", event.theme
            )
            self._strangers = {event.theme, *list(self._strangers)[:STRANGERS_MAX]}
        return self.writer.divert(event, "the theme is not in allowed_themes")

    def change_entry(self, event: Add | Replace | Remove) -> bool:
        """Take a change of MEMORY.md or USER.md that the host has just made, and keep the snapshot in step with it."""
        try:
            with self.home.snapshot() as snapshot:
                event = self._resolved(event, snapshot[event.target])
                accepted = self.accept(event)
                if accepted:
                    snapshot[event.target] = mirror.apply(snapshot[event.target], event)
                return accepted
        except OSError:
            return self.accept(self._resolved(event, ()))

    def reconcile(self, identity: Identity, session_id: str) -> None:
        """Compare the memory files with their snapshot, in the background, in the home's own theme."""
        if self.settings.bulk_sync_on_init:
            self._errands.submit(self._reconcile, home_theme(identity, aliases=self.settings.theme_aliases), session_id)

    def _resolved(self, event: Add | Replace | Remove, before: tuple[str, ...]) -> Add | Replace | Remove:
        """A replace or remove that names the whole old entry where that can be told, and what the file holds now."""
        if isinstance(event, Add) or event.previous:
            return event
        now = self.home.entries(event.target) or ()
        return replace(event, previous=mirror.resolve(event.old_text, before, now) or "", surviving=now)

    def _reconcile(self, theme: str, session_id: str) -> None:
        try:
            files = {target: self.home.entries(target) for target in TARGETS}
            if files == self._files_seen:
                return
            with self.home.snapshot() as snapshot:
                for target, entries in files.items():
                    if entries is not None and self._accept_changes(
                        theme, session_id, target, snapshot[target], entries
                    ):
                        snapshot[target] = entries
            self._files_seen = {target: entries for target, entries in files.items() if entries is not None}
        except OSError as error:
            log.warning("MEMORY.md and USER.md are not reconciled: %s", error.strerror or type(error).__name__)

    def _accept_changes(
        self, theme: str, session_id: str, target: Target, before: tuple[str, ...], now: tuple[str, ...]
    ) -> bool:
        changes = mirror.diff(now, before, ())
        common = {"theme": theme, "home": self.home.id, "session_id": session_id, "metadata": {"origin": "file"}}
        removed = [self.accept(Remove(target=target, previous=entry, **common)) for entry in changes.remove]  # type: ignore[arg-type]
        added = [self.accept(Add(target=target, content=entry, from_file=True, **common)) for entry in changes.add]  # type: ignore[arg-type]
        return all(removed) and all(added)

    # Reading

    def recall(self, kind: str, request: RecallRequest) -> Recall:
        """Answer within the request's budget, what was just written included; `kind` is `entries` or `turns`."""
        deadline = time.monotonic() + request.budget_s
        if not self._ready.is_set():
            self.writer.wake()
            self._ready.wait(request.budget_s * READY_SHARE)
        self.writer.flush(request.budget_s * FLUSH_SHARE)
        request = replace(request, budget_s=max(0.1, deadline - time.monotonic()))
        return self._recaller.turns(request) if kind == "turns" else self._recaller.entries(request)

    def warm(self, query: str) -> None:
        """Have the query's vector at hand, in the background."""
        self._errands.submit(self._recaller.warm, query, self.settings.prefetch_budget_s)

    def floor(self) -> float | None:
        """The similarity below which a row has nothing to do with a query; None until it is known."""
        if self.settings.min_similarity is not None:
            return self.settings.min_similarity
        return self._floor

    # Themes

    def theme(self, identity: Identity, session_key: str | None) -> str:
        """The theme of a hook that runs now. Raises BadArgument for a reserved name."""
        if not self._person_key:
            named = os.environ.get("HERMES_PGVECTOR_PERSON_KEY", "")
            self._person_key = named.encode() or self.home.secret()
        return theme_of(identity, session_key, aliases=self.settings.theme_aliases, person_key=self._person_key)

    def scope(self, theme: str, name: str, session_id: str) -> Scope:
        """The rows that `theme` sees when it asks for scope `name`. Raises BadArgument."""
        name = name or self.settings.scope_default
        if name == "session" and not session_id:
            raise BadArgument("scope is 'session' but there is no session; use current")
        themes = readable(
            theme,
            name,
            cross_theme_recall=self.settings.cross_theme_recall,
            allowed_themes=self.settings.allowed_themes,
            aliases=self.settings.theme_aliases,
        )
        return Scope(theme, themes, session_id if name == "session" else "")

    # State

    def wait_ready(self, timeout_s: float) -> bool:
        """Connect now, and wait until the database is usable; False when it is not in time."""
        self.writer.wake()
        return self._ready.wait(timeout_s)

    def fitting_embedder(self) -> Embedder | str:
        """The embedder whose vectors fit the database, or the reason why meaning is not searched."""
        if self._fit:
            return self._fit
        return self.embedder or self._embedder_problem

    def status(self) -> dict[str, Any]:
        """The state of this process's memory, as JSON values and without secrets."""
        counters, health, embedder = self.writer.counters, self.writer.health, self.fitting_embedder()
        return {
            "database": self.database.label,
            "ready": self._ready.is_set(),
            "problem": health.problem,
            "failing_since": health.failing_since and health.failing_since.isoformat(),
            "last_success": health.last_success and health.last_success.isoformat(),
            "embedder": embedder if isinstance(embedder, str) else embedder.model,
            "meaning": not isinstance(embedder, str),
            "counters": {name: getattr(counters, name) for name in counters.__slots__},
            "healed": self.writer.healed,
            "set_aside": len(self.home.aside()),
            "connections": self.database.pool_size(),
        }

    def close(self, drain_s: float) -> None:
        """Drain for at most `drain_s` seconds and release everything; what is left waits in the spool."""
        self.writer.stop(drain_s)
        self._spool.close()
        self.database.close()
        with self._embedder_lock:
            embedder, self._embedder = self._embedder, None
        if embedder is not None:
            embedder.close()

    def abandon(self) -> None:
        """Begin anew in a forked child: files, sockets and threads belong to the parent."""
        self._spool.abandon()
        self.database.abandon()
        self.writer.abandon()
        self._errands = Errands("hermes-pgvector-errand", 1)
        self._begin()

    def _make_ready(self) -> Embedder | None:
        """Called by the drain thread before each batch: connect, migrate or verify, and match the embedder."""
        if not self._ready.is_set() or self.writer.health.problem:
            state = self.database.prepare(self._wanted_dimensions())
            self._fit = self._misfit(state.dimensions)
            self._ready.set()
            if not self._fit:
                self._errands.submit(self._calibrate)
        elif self._fit and self.embedder is not None and self.embedder.dimensions is None:
            self._fit = self._misfit(self.database.state.dimensions if self.database.state else 0)
        embedder = self.fitting_embedder()
        return None if isinstance(embedder, str) else embedder

    def _wanted_dimensions(self) -> int:
        """The vector length for a database that this process creates itself."""
        if self.database.server is None or self.database.state is not None or self.embedder is None:
            return DEFAULT_DIMENSIONS
        if self.embedder.dimensions is None:
            try:
                self.embedder.embed_query("dimensions", PROBE_S_MAX)
            except EmbedderUnavailable as error:
                raise EmbedderUnavailable(
                    f"the vector length of {self.embedder.model} is unknown until it answers ({error}); "
                    "set embed_dimensions to go on without it"
                ) from None
        return self.embedder.dimensions or DEFAULT_DIMENSIONS

    def _misfit(self, stored: int) -> str:
        """Why the embedder's vectors do not fit those in the database; empty when they do."""
        if self.embedder is None:
            return self._embedder_problem
        if self.embedder.dimensions is None:
            try:
                self.embedder.embed_query("dimensions", PROBE_S_MAX)
            except (Unavailable, Refused) as error:
                return f"by words only: {error}"
        if self.embedder.dimensions != stored:
            return self._warned(
                f"by words only: {self.embedder.model} makes vectors of {self.embedder.dimensions}, the database holds "
                f"vectors of {stored}; set embed_model and embed_url to the model that made them"
            )
        model = self.database.claim_model(self.embedder.model)
        if model != self.embedder.model:
            return self._warned(
                f"by words only: the database holds vectors of {model}, this process uses {self.embedder.model}; "
                "use the same model"
            )
        return ""

    def _warned(self, problem: str) -> str:
        if problem != self._fit:
            log.warning("%s", problem)
        return problem

    def _calibrate(self) -> None:
        """Measure the floor of this model once per home; ambient recall has none until then."""
        if self.embedder is None or self.settings.min_similarity is not None:
            return
        known = self.home.recollect("calibration")
        if isinstance(known, dict) and isinstance(known.get(self.embedder.model), float):
            self._floor = known[self.embedder.model]
            return
        try:
            self._floor = noise_floor(self.embedder, self.settings.embed_timeout_s)
        except (Unavailable, Refused) as error:
            log.info("ambient recall has no floor yet: %s", error)
            return
        kept = known if isinstance(known, dict) else {}
        self.home.remember("calibration", {**kept, self.embedder.model: self._floor})


_lock = threading.Lock()
_runtimes: dict[tuple[Path, str], tuple[Runtime, int]] = {}


def acquire(settings: Settings, hermes_home: str | os.PathLike[str]) -> Runtime:
    """The runtime of this process for these settings and this home; made on first use. Raises SettingsError."""
    key = (Path(hermes_home).expanduser().resolve(), settings.model_dump_json())
    with _lock:
        runtime, users = _runtimes.get(key) or (Runtime(settings, key[0]), 0)
        _runtimes[key] = (runtime, users + 1)
    return runtime


def release(runtime: Runtime) -> None:
    """Give back what `acquire` returned; the last one drains and closes it."""
    with _lock:
        for key, (held, users) in list(_runtimes.items()):
            if held is runtime:
                if users > 1:
                    _runtimes[key] = (held, users - 1)
                    return
                del _runtimes[key]
                break
        else:
            return
    runtime.close(runtime.settings.shutdown_drain_s)


def _close_all() -> None:
    with _lock:
        left = [runtime for runtime, _ in _runtimes.values()]
        _runtimes.clear()
    for runtime in left:
        try:
            runtime.close(runtime.settings.shutdown_drain_s)
        except (PgvectorError, OSError) as error:
            log.debug("not closed cleanly: %s", type(error).__name__)


def _abandon_all() -> None:
    global _lock
    _lock = threading.Lock()
    for runtime, _ in _runtimes.values():
        runtime.abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
