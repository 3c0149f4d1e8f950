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
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ParamSpec

from .background import BackgroundExecutor
from .embedding.compatibility import EmbedderCompatibility
from .embedding.protocol import Embedder
from .errors import BadArgument, PgvectorError
from .hosts.guard import guarded, nothing
from .mirror.home import Home
from .mirror.reconcile import Reconciler
from .model import Event, Recall, RecallRequest, Scope
from .outbox.dead_letters import DeadLetters
from .outbox.memory_queue import open_outbox
from .recall.cache import Remembered
from .recall.recaller import Recaller
from .session.off_record import OffRecordSessions
from .session.person_key import NOT_MET
from .session.themes import Identity, allowed, author_of, home_theme, readable, theme_of
from .settings import Settings
from .store.connection.database import Database
from .text.theme_names import hidden_pattern, is_bench
from .write.readiness import Readiness
from .write.refiling import Refiling
from .write.writer import AsyncWriter

log = logging.getLogger("hermes.pgvector")

P = ParamSpec("P")

FLUSH_SHARE = 0.2
READY_SHARE = 0.5
HOPELESS_DRAIN_S = 0.3
STRANGERS_MAX = 100
BEGUN_MAX = 1000


class Runtime:
    """Everything one home needs in this process. Safe for any thread; making one touches nothing but the spool folder.

    `turn_lock` orders the turns of conversations with their replays; it is here because a fork renews what is here.
    `begun` tells when the conversation began that runs in a theme and session which may have held others before.
    Raises SettingsError when there is no database to use.
    """

    def __init__(self, settings: Settings, hermes_home: str | os.PathLike[str]) -> None:
        self.settings = settings
        self.home = Home(hermes_home, settings.spool_dir)
        self.dead_letters = DeadLetters(self.home.state, bytes_max=settings.spool_max_mb << 20)
        self.home.snapshot.keep_open = True
        self.database = Database(settings, self.home.path)
        self._spool = open_outbox(
            self.home.spool,
            bytes_max=settings.spool_max_mb << 20,
            window_max=settings.write_queue_maxsize,
            fsync=settings.spool_fsync,
        )
        self.fitting = EmbedderCompatibility(settings, self.home.state, self.database)
        self.files = Reconciler(self.home, self.accept)
        self.off_record = OffRecordSessions(self.home.state)
        self._readiness = self._make_readiness()
        self.writer = AsyncWriter(
            self._spool,
            self.home.spool,
            self.dead_letters,
            self.database,
            settings,
            readiness=self._readiness,
            rename=self.home.person_key.filed,
        )
        self._recaller = Recaller(self.database, self.usable_embedder, settings)
        self._errands = BackgroundExecutor("hermes-pgvector-errand", 1)
        self._reconciling: dict[str, Future[None]] = {}
        self._strangers: set[str] = set()
        self.turn_lock = threading.Lock()
        self.begun: Remembered[tuple[str, str], datetime] = Remembered(BEGUN_MAX)

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

    def reconcile(self, identity: Identity, session_id: str) -> None:
        """Compare the memory files with their snapshot, in the background, in the home's own theme."""
        if self.settings.bulk_sync_on_init and not self.settings.off_record:
            theme = home_theme(identity, aliases=self.settings.theme_aliases)
            if not is_bench(theme, self.settings.bench_themes):
                waiting = self._reconciling.get(theme)
                # One that has not begun yet will see what this one would; and so none heap up behind a busy home.
                if waiting is None or waiting.running() or waiting.done():
                    self._reconciling = {theme: self.in_background(self.files.reconcile, theme, session_id)}

    # Reading

    def recall(self, kind: str, request: RecallRequest) -> Recall:
        """Answer within the request's budget, what was just written included; `kind` is `entries` or `turns`."""
        deadline = time.monotonic() + request.budget_s
        if not self._readiness.reached:
            self.wait_ready(request.budget_s * READY_SHARE)
        self.writer.flush(request.budget_s * FLUSH_SHARE)
        request = replace(request, budget_s=max(0.1, deadline - time.monotonic()))
        return self._recaller.turns(request) if kind == "turns" else self._recaller.entries(request)

    # Themes

    def theme(self, identity: Identity, session_key: str | None) -> str:
        """The theme of a hook that runs now. Raises BadArgument for a reserved name."""
        aliases = self.settings.theme_aliases
        return self.home.person_key.theme(lambda key: theme_of(identity, session_key, aliases=aliases, person_key=key))

    def author(self, platform: str, user_id: str) -> str:
        """The pseudonym of a person in a room."""
        return self.home.person_key.theme(lambda key: author_of(platform, user_id, person_key=key))

    def in_background(self, job: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """Do something that no hook waits for; when it fails, the log says so."""
        return self._errands.submit(guarded(nothing)(job), *args, **kwargs)

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
            bench_themes=self.settings.bench_themes,
        )
        hidden = hidden_pattern(self.settings.bench_themes)
        return Scope(theme, themes, session_id if name == "session" else "", hidden=hidden)

    # State

    def wait_ready(self, timeout_s: float) -> bool:
        """Connect now, and wait until the database is usable; False when it is not in time."""
        self.writer.wake()
        return self._readiness.wait(timeout_s)

    def usable_embedder(self) -> Embedder | str:
        """The embedder whose vectors fit the database, or the reason why meaning is not searched."""
        return self.fitting.usable()

    def status(self) -> dict[str, Any]:
        """The state of this process's memory, as JSON values and without secrets."""
        counters, health, embedder = self.writer.counters, self.writer.health, self.usable_embedder()
        return {
            "database": self.database.label,
            "ready": self._readiness.reached,
            "problem": health.problem,
            "stuck": self.writer.stuck,
            "failing_since": health.failing_since and health.failing_since.isoformat(),
            "last_success": health.last_success and health.last_success.isoformat(),
            "embedder": embedder if isinstance(embedder, str) else embedder.model,
            "meaning": not isinstance(embedder, str),
            "counters": {name: getattr(counters, name) for name in counters.__slots__},
            "healed": self.writer.backfilled,
            "set_aside": len(self.dead_letters.ids()),
            "connections": self.database.pool_size(),
        }

    def close(self, drain_s: float) -> None:
        """Drain for at most `drain_s` seconds and release everything; what is left waits in the spool."""
        # While Postgres is known to be away, waiting for it only keeps a person from their prompt.
        self.writer.stop(min(drain_s, HOPELESS_DRAIN_S) if self.writer.health.problem else drain_s)
        self._spool.close()
        self.database.close()
        self.fitting.close()
        self.home.snapshot.close()

    def abandon(self) -> None:
        """Begin anew in a forked child: files, sockets and threads belong to the parent."""
        self._spool.abandon()
        self.database.abandon()
        # The lock of the old one may be held by a thread that does not exist here; its sockets are the parent's.
        self.fitting = EmbedderCompatibility(self.settings, self.home.state, self.database)
        self._readiness = self._make_readiness()
        self.writer.abandon(self._readiness)
        self._errands = BackgroundExecutor("hermes-pgvector-errand", 1)
        self._reconciling = {}
        self.turn_lock = threading.Lock()
        self.begun = Remembered(BEGUN_MAX)
        self.home.person_key.abandon()
        self.home.snapshot.abandon()
        self.off_record = OffRecordSessions(self.home.state)
        self._recaller.abandon()

    def _make_readiness(self) -> Readiness:
        refiling = Refiling(self.dead_letters, self.settings, NOT_MET, self.home.person_key.met, self.accept)
        return Readiness(self.database, self.fitting, refiling, self.home.person_key.settle, self.in_background)


_lock = threading.Lock()
_runtimes: dict[tuple[Path, str], tuple[Runtime, int]] = {}


def acquire(settings: Settings, hermes_home: str | os.PathLike[str]) -> Runtime:
    """The runtime of this process for these settings and this home; made on first use. Raises SettingsError."""
    # A dump hides the DSN, and two databases must not be taken for one.
    named = settings.model_dump_json() + settings.dsn.get_secret_value()
    key = (Path(hermes_home).expanduser().resolve(), named)
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
