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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from .background import BackgroundExecutor, HookGap, importing
from .errors import CheckpointFailed, PgvectorError, SettingsError
from .files import reason
from .hosts.environment import scrubber
from .hosts.guard import guarded, nothing
from .model import Event, Recall, RecallRequest, Scope
from .session.identity import Identity
from .session.persons import Changes, Persons
from .session.scopes import read_unasked, scope_of
from .session.themes import NOT_ALLOWED, allowed, home_theme
from .settings import Settings
from .text.personal_keys import shown
from .text.theme_names import is_bench

if TYPE_CHECKING:
    from .embedding.compatibility import EmbedderCompatibility
    from .outbox.dead_letters import DeadLetters
    from .recall.reranking import Recalling
    from .session.replay import Replay
    from .store.connection.database import Database
    from .store.queries import Kind
    from .write.batches import BatchProcessor
    from .write.readiness import Readiness
    from .write.writer import AsyncWriter

log = logging.getLogger("hermes.pgvector")

P = ParamSpec("P")

AWAY_DRAIN_S, IMPORT_GAP_S, STARTING_S_MAX, UNKNOWN_THEMES_MAX = 0.3, 0.02, 1.0, 100


class Runtime:
    """Everything one home needs in this process. Safe for any thread; making one writes nothing but the spool folder.

    `context` is what conversations share, `users` counts who acquired it. Raises SettingsError without a database.
    """

    # Made at the first use: their modules take long to import, and the first hooks of a process need none of them.
    dead_letters: DeadLetters
    database: Database
    compatibility: EmbedderCompatibility
    writer: AsyncWriter
    _batches: BatchProcessor
    _readiness: Readiness
    _recaller: Recalling

    def __init__(self, settings: Settings, hermes_home: str | os.PathLike[str]) -> None:
        # Hosts execute this module also when no session uses this memory.
        from .mirror.home import Home
        from .mirror.reconcile import Reconciler
        from .outbox.memory_queue import open_outbox
        from .session.home_context import HomeContext
        from .store.connection.dsn import unusable

        if reason := unusable(settings):
            raise SettingsError(reason)
        self.settings, self.users = settings, 0
        self.home = Home(hermes_home, settings)
        self._spool = open_outbox(self.home.spool, settings)
        self.files = Reconciler(self.home, self.accept, lambda entry: self.context.capture.keeps_of_file(entry))
        self.context = HomeContext(
            settings, self.home.path, self.home.state,
            home_id=lambda: self.home.id, accept=self.accept, change_entry=self.files.change,
        )  # fmt: skip
        self.persons, self._unknown_themes = Persons(), set[str]()
        self._start()

    def _start(self) -> None:
        """Make what a forked child cannot take over: threads, sockets, and locks that a thread of the parent held."""
        from .facts.turns import FactTurns
        from .recall.prefetch import Prefetch

        self._lock, self._hooks, self._woken = threading.Lock(), HookGap(), False
        self._background = BackgroundExecutor("hermes-pgvector-background", 1)
        self._reconciling: dict[str, Future[None]] = {}
        self._starting: list[Future[None]] = []
        floor, away = lambda: self.compatibility.floor, lambda: bool(self.writer.health.problem)
        reads, home = partial(read_unasked, settings=self.settings), self.home.path
        self.facts = FactTurns(self.settings, self.accept, lambda: self.database, self.wait_ready, self.own)
        self.prefetch = Prefetch(self.settings, self.recall_each, floor, away, home, reads, self.facts.block)

    def __getattr__(self, name: str) -> Any:
        if name not in Runtime.__annotations__:
            raise AttributeError(name)
        self.load()
        return self.__dict__[name]

    def load(self) -> None:
        """Import what the first hooks do not need. Two threads that import the driver at once may see parts of it."""
        with importing(), self._lock:
            if self._imported:
                return
            from .embedding.compatibility import EmbedderCompatibility
            from .outbox.dead_letters import DeadLetters
            from .recall import recaller
            from .store.connection.database import Database
            from .write.batches import BatchProcessor
            from .write.readiness import Readiness
            from .write.writer import AsyncWriter

            settings, key, outages = self.settings, self.context.person_key, self.context.outages
            self.dead_letters = letters = DeadLetters(self.home.state, bytes_max=settings.spool_max_mb << 20)
            self.database = database = Database(settings, self.home.path)
            database.held.home = self.home.label(settings.home_label)
            self.compatibility = fit = EmbedderCompatibility(settings, self.home.state, database, self.home.path)
            self._batches = BatchProcessor(self._spool, letters, database, settings, key.renamed, outages.stored)
            self._recaller = recaller.build(database, fit.usable, settings)
            look = Changes(self.persons, self._batches.empty_caches, self._recaller.empty_caches).refresh
            refile = partial(key.refile, letters, self.accept)
            self._readiness = Readiness(settings, database, fit, key, look, self.in_background, refile, outages.over)
            recalls = self._recaller.recalls
            self.writer = writer = AsyncWriter(self._batches, self._readiness.embedder, self._hooks, look, recalls)
            outages.parts = {"database": writer.condition, "outbox": writer.spool_condition, "embedder": fit.condition}
            if self._woken:
                self.writer.wake()

    @property
    def _imported(self) -> bool:
        return "writer" in self.__dict__

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
            if not self._imported and self._spool.append(event):
                self.wake()
                return True
            return self.writer.accept(event)
        if event.theme not in self._unknown_themes:
            told = "theme %s is not in allowed_themes: its events become dead letters; see: hermes-pgvector doctor"
            log.warning(told, shown(event.theme))
            self._unknown_themes = {event.theme, *list(self._unknown_themes)[:UNKNOWN_THEMES_MAX]}
        return self.writer.divert(event, NOT_ALLOWED)

    def wake(self) -> None:
        """Have the writer look for work soon. In a new process it is imported first, in the background."""
        self._hooks.called()
        before, self._woken = self._woken, True  # set before the writer is looked for: `load` looks in reverse
        if self._imported:
            self.writer.wake()
        elif not before:
            self._starting.append(self.in_background(self._begin))

    def _begin(self) -> None:
        self._hooks.wait(IMPORT_GAP_S)
        self.load()
        with importing():
            self.prefetch.load()

    def checkpoint(self, replay: Replay, messages: Sequence[Mapping[str, Any]]) -> None:
        """Have the turns of these messages and all earlier events survive a power loss. Raises CheckpointFailed."""
        try:
            if not replay.checkpoint(messages):
                raise CheckpointFailed("the outbox refuses the turns; run: hermes-pgvector doctor")
            self._spool.sync()
        except (PgvectorError, OSError) as error:
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise CheckpointFailed(f"the turns to be compressed are not safe on disk: {why}") from error
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
        if not self._readiness.reached.is_set():
            self.wait_ready(READY_SHARE * request.budget_s)
        self.writer.flush(FLUSH_SHARE * request.budget_s)
        # Not before: the database knows the accounts of a person.
        scope = self.persons.scope(request.scope)
        return self._recaller.recall_each(kinds, replace(request, scope=scope, budget_s=deadline.left_s))

    def own(self, theme: str) -> tuple[str, ...]:
        """The themes that hold the rows of a theme's person: those linked to it, the one that is written to first."""
        return self.persons.themes(theme)

    def scope(self, theme: str, name: str, session_id: str, granted: tuple[str, ...] | None = None) -> Scope:
        """As `scopes.scope_of`, with the settings of the home."""
        return scope_of(theme, name, session_id, self.settings, granted)

    def wait_ready(self, timeout_s: float) -> bool:
        """Connect, and wait until the database is usable; False when `timeout_s` seconds were not enough."""
        self.writer.wake(awaited=True)
        return self._readiness.reached.wait(timeout_s)

    def close(self, drain_s: float) -> None:
        """Write what is pending for at most `drain_s` seconds and release everything; the rest stays in the spool."""
        until = time.monotonic() + drain_s
        self._hooks.hurry()
        wait(self._starting, min(drain_s, STARTING_S_MAX))
        left_s = max(0.0, until - time.monotonic())
        # While Postgres is known to be away, waiting for it only delays the person's prompt.
        self.writer.stop(min(left_s, AWAY_DRAIN_S) if self.writer.health.problem else left_s)
        for part in (self._spool, self.database, self.compatibility, self._recaller):
            part.close()

    def abandon(self) -> None:
        """Start again in a forked child: files, sockets and threads belong to the parent."""
        self._spool.abandon()
        if self._imported:
            self._batches.sources.abandon()
            self.database.abandon()
        for name in Runtime.__annotations__:
            self.__dict__.pop(name, None)
        self.context.abandon()
        self.files.abandon()
        self._start()


_lock = threading.Lock()
_runtimes: dict[tuple[Path, str], Runtime] = {}


def acquire(settings: Settings, hermes_home: str | os.PathLike[str]) -> Runtime:
    """The runtime of this process for these settings and home, made on first use. Raises SettingsError."""
    # A dump hides the DSN.
    key = (Path(hermes_home).expanduser().resolve(), settings.model_dump_json() + "\n".join(settings.addresses))
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
    if runtime._spool.pending:
        with _lock:  # what is in memory only is stored later, unless the process ends before
            _runtimes.setdefault(keys[0], runtime)
        runtime.wake()


def _close_all() -> None:
    with _lock:
        left = list(_runtimes.values())
        _runtimes.clear()
    for runtime in left:
        guarded(nothing)(runtime.close)(runtime.settings.shutdown_drain_s)


def _abandon_all() -> None:
    global _lock
    _lock = threading.Lock()
    for runtime in _runtimes.values():
        runtime.abandon()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
