"""One runtime per process and home: connections, embedder, spool and writer, shared by all providers.

Hosts make a provider for each request and may never shut it down, so providers own no thread, file or connection. Users
of a runtime are counted, and the last `release` closes it.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from .background import BackgroundExecutor
from .errors import BadArgument, CheckpointFailed, PgvectorError
from .hosts.environment import scrubber
from .hosts.guard import guarded, nothing
from .model import Event, Recall, RecallRequest, Scope
from .session.themes import Identity, allowed, home_theme, readable
from .settings import Settings
from .text.theme_names import hidden_pattern, is_bench

if TYPE_CHECKING:
    from .embedding.protocol import Embedder
    from .session.conversation import Conversation, HomeContext
    from .store.queries import Kind

log = logging.getLogger("hermes.pgvector")

P = ParamSpec("P")

AWAY_DRAIN_S = 0.3
UNKNOWN_THEMES_MAX = 100
FIRST_MATCH_S_MAX = 1.0
STARTING_S_MAX = 1.0


class Runtime:
    """Everything one home needs in this process. Safe for any thread; making one writes nothing but the spool folder.

    `context` is what conversations share, `users` counts who acquired it. Raises SettingsError when there is no
    database to use.
    """

    def __init__(self, settings: Settings, hermes_home: str | os.PathLike[str]) -> None:
        # Hosts execute all top-level modules of a plugin folder, also when no session uses this memory. So modules that
        # take long to import (psycopg, numpy, httpx) are imported when a runtime is made.
        from .mirror.home import Home
        from .mirror.reconcile import Reconciler
        from .outbox.dead_letters import DeadLetters
        from .outbox.spool import open_outbox
        from .store.connection.database import Database

        self.users = 0
        self.settings = settings
        self.home = Home(hermes_home, settings.spool_dir)
        self.dead_letters = DeadLetters(self.home.state, bytes_max=settings.spool_max_mb << 20)
        self.database = Database(settings, self.home.path)
        self._spool = open_outbox(self.home.spool, settings)
        self.files = Reconciler(self.home, self.accept)
        self.context = self._make_context()
        self._unknown_themes: set[str] = set()
        self._start()

    def _make_context(self) -> HomeContext:
        from .session.conversation import HomeContext

        return HomeContext(
            self.settings,
            self.home.path,
            self.home.state,
            home_id=lambda: self.home.id,
            accept=self.accept,
            change_entry=self.files.change,
        )

    def _start(self) -> None:
        """Make what a forked child cannot take over: threads, sockets, and locks that a thread of the parent held."""
        from .embedding.compatibility import EmbedderCompatibility
        from .recall.prefetch import Prefetch
        from .recall.recaller import Recaller
        from .write.batches import BatchProcessor
        from .write.writer import AsyncWriter

        settings, database = self.settings, self.database
        self._background = BackgroundExecutor("hermes-pgvector-background", 1)
        self._reconciling: dict[str, Future[None]] = {}
        self._starting: list[Future[None]] = []
        self._matching: Future[None] | None = None
        self._refile_at = 0.0
        self._reached = threading.Event()
        self.compatibility = fit = EmbedderCompatibility(settings, self.home.state, database)
        rename = self.context.person_key.renamed
        self._batches = BatchProcessor(self._spool, self.dead_letters, database, settings, rename)
        self.writer = writer = AsyncWriter(self._batches, self._embedder)
        self._recaller = Recaller(database, fit.usable, settings)
        self.prefetch = Prefetch(settings, self.recall_each, lambda: fit.floor, lambda: bool(writer.health.problem))

    # Writing

    def make_files(self) -> None:
        """Make and look up what the first event needs, so that its hook need not. Where it fails, the hook retries."""
        scrubber()
        with suppress(OSError):
            self._spool.ensure_folder()
        self.context.home_id()

    def accept(self, event: Event) -> bool:
        """Make an event durable; False, and counted, when the spool refuses it. Returns in microseconds.

        An event of a theme that is not in `allowed_themes` becomes a dead letter: a mistyped name makes no theme.
        """
        if allowed(event.theme, self.settings.allowed_themes):
            return self.writer.accept(event)
        if event.theme not in self._unknown_themes:
            log.warning(
                "theme %r is not in allowed_themes: its events become dead letters; see: hermes-pgvector doctor",
                event.theme,
            )
            self._unknown_themes = {event.theme, *list(self._unknown_themes)[:UNKNOWN_THEMES_MAX]}
        return self.writer.divert(event, "the theme is not in allowed_themes")

    def checkpoint(self, conversation: Conversation, messages: Sequence[Mapping[str, Any]]) -> None:
        """Have the turns of these messages and all earlier events survive a power loss. Raises CheckpointFailed."""
        try:
            if not conversation.checkpoint(messages):
                raise CheckpointFailed("the outbox refuses the turns; run: hermes-pgvector doctor")
            self._spool.sync()
        except (PgvectorError, OSError) as error:
            reason = error.strerror or type(error).__name__ if isinstance(error, OSError) else str(error)
            raise CheckpointFailed(f"the turns to be compressed are not safe on disk: {reason}") from error
        except Exception as error:
            raise CheckpointFailed(f"the turns to be compressed cannot be read: {type(error).__name__}") from error

    def reconcile(self, identity: Identity, session_id: str) -> None:
        """Compare the memory files with their snapshot, in the background, in the home's own theme."""
        if self.settings.bulk_sync_on_init and not self.settings.off_record:
            theme = home_theme(identity, aliases=self.settings.theme_aliases)
            if not is_bench(theme, self.settings.bench_themes):
                last = self._reconciling.get(theme)
                # A comparison that still waits for its turn will see the same files.
                if last is None or last.running() or last.done():
                    self._reconciling = {theme: self.after_start(self.files.reconcile, theme, session_id)}

    def in_background(self, job: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """Run a job that no hook waits for; a failure is logged."""

        return self._background.submit(guarded(nothing)(job), *args, **kwargs)

    def after_start(self, job: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> Future[None]:
        """As `in_background`, but a job of a process that has just started waits for its first hooks."""

        def run() -> None:
            self.writer.wait_for_start()
            job(*args, **kwargs)

        future = self.in_background(run)
        self._starting = [*(job for job in self._starting if not job.done()), future]
        return future

    # Reading

    def recall(self, kind: Kind, request: RecallRequest) -> Recall:
        """The answer within the budget of the request, with what was just written."""
        return self.recall_each((kind,), request)[0]

    def recall_each(self, kinds: Sequence[Kind], request: RecallRequest) -> list[Recall]:
        """As `recall`, for each of these kinds, within one budget."""
        from .recall.deadline import FLUSH_SHARE, READY_SHARE, Deadline

        deadline = Deadline(request.budget_s)
        if not self._reached.is_set():
            self.wait_ready(READY_SHARE * request.budget_s)
        self.writer.flush(FLUSH_SHARE * request.budget_s)
        return self._recaller.recall_each(kinds, replace(request, budget_s=deadline.left_s))

    def scope(self, theme: str, name: str, session_id: str) -> Scope:
        """The rows that `theme` may read with the scope `name`; empty for `scope_default`. Raises BadArgument."""
        name = name or self.settings.scope_default
        if name == "session" and not session_id:
            raise BadArgument("scope is 'session' but there is no session; use current")
        themes, hidden = readable(theme, name, self.settings), hidden_pattern(self.settings.bench_themes)
        return Scope(theme, themes, session_id if name == "session" else "", hidden=hidden)

    # State

    def wait_ready(self, timeout_s: float) -> bool:
        """Connect, and wait until the database is usable; False when `timeout_s` seconds were not enough."""
        self.writer.wake(awaited=True)
        return self._reached.wait(timeout_s)

    def _embedder(self, *, verify: bool) -> Embedder | None:
        """For the writer: the embedder whose vectors fit the database; None when there is none now.

        The first time, and with `verify`, this connects, creates or verifies the schema, and matches person key and
        embedder. What is due in the background is started. Raises Unavailable or SchemaNotApplied.
        """
        fit, key = self.compatibility, self.context.person_key
        if verify or not self._reached.is_set():
            dimensions = self.database.prepare(fit.wanted_dimensions()).dimensions
            key.settle(self.database.claim_person_key)
            self._match(dimensions, FIRST_MATCH_S_MAX)
            self._reached.set()
        elif fit.undecided and self.database.state is not None:
            self._match(self.database.state.dimensions, 0.0)
        if fit.calibration_due():
            self.in_background(fit.calibrate)
        if time.monotonic() >= self._refile_at and key.met():
            self._refile_at = time.monotonic() + self.settings.adopt_interval_s
            self.in_background(self._refile)
        embedder = fit.usable()
        return None if isinstance(embedder, str) else embedder

    def _match(self, dimensions: int, wait_s: float) -> None:
        """Match the embedder in the background, because it may take seconds to answer; wait for it a little."""
        if self._matching is None or self._matching.done():
            self._matching = self.in_background(self.compatibility.match, dimensions)
        with suppress(TimeoutError):
            self._matching.result(wait_s)

    def _refile(self) -> None:
        """Accept dead letters whose person or room was met since. Other processes may do the same."""
        from .session.person_key import NOT_MET

        themes = self.context.person_key.met()
        for letter in self.dead_letters:
            event = letter.event if letter.reason == NOT_MET else None
            if event is not None and event.theme in themes and self.accept(event):
                # The writer may have made it a dead letter again already, for another reason.
                now = self.dead_letters.read(letter.id)
                if now is not None and now.reason == NOT_MET:
                    self.dead_letters.forget(letter.id)

    def close(self, drain_s: float) -> None:
        """Write what is pending for at most `drain_s` seconds and release everything; the rest stays in the spool."""
        until = time.monotonic() + drain_s
        self.writer.hurry()
        wait(self._starting, min(drain_s, STARTING_S_MAX))
        left_s = max(0.0, until - time.monotonic())
        # While Postgres is known to be away, waiting for it only delays the person's prompt.
        self.writer.stop(min(left_s, AWAY_DRAIN_S) if self.writer.health.problem else left_s)
        self._spool.close()
        self.database.close()
        self.compatibility.close()

    def abandon(self) -> None:
        """Start again in a forked child: files, sockets and threads belong to the parent."""
        self._batches.sources.abandon()
        self.database.abandon()
        self.context.abandon()
        self.files.abandon()
        self._start()


_lock = threading.Lock()
_runtimes: dict[tuple[Path, str], Runtime] = {}


def acquire(settings: Settings, hermes_home: str | os.PathLike[str]) -> Runtime:
    """The runtime of this process for these settings and home, made on first use. Raises SettingsError."""
    # A dump hides the DSN.
    named = settings.model_dump_json() + settings.dsn.get_secret_value()
    key = (Path(hermes_home).expanduser().resolve(), named)
    with _lock:
        runtime = _runtimes[key] = _runtimes.get(key) or Runtime(settings, key[0])
        runtime.users += 1
    return runtime


def release(runtime: Runtime) -> None:
    """Give back what `acquire` returned. The last user closes it: pending events are written, within a time limit."""
    with _lock:
        runtime.users -= 1
        keys = [key for key, held in _runtimes.items() if held is runtime]
        if runtime.users > 0 or not keys:
            return
        del _runtimes[keys[0]]
    runtime.close(runtime.settings.shutdown_drain_s)


def _close_all() -> None:
    with _lock:
        left = list(_runtimes.values())
        _runtimes.clear()
    for runtime in left:
        try:
            runtime.close(runtime.settings.shutdown_drain_s)
        except (PgvectorError, OSError) as error:
            log.debug("the runtime was not closed cleanly: %s", type(error).__name__)


def _abandon_all() -> None:
    global _lock
    _lock = threading.Lock()
    for runtime in _runtimes.values():
        runtime.abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
