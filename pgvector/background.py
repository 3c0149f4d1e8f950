"""Daemon threads for calls in the background: what they wait for, and what a fork or an exit waits for in them."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from .errors import Unavailable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S_MAX = 10.0
FORK_WAIT_S_MAX = EXIT_WAIT_S_MAX = 5.0
GAP_WAIT_S_MAX = 1.0

_import_lock = threading.RLock()


class _NativeCalls:
    """The number of running calls into native code; none begins when `ending` is set."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running = 0
        self.ending = False


_native = _NativeCalls()


@contextmanager
def native_call() -> Iterator[None]:
    """A context for a call, on any thread, into a library written in C++.

    The exit of the process waits until it ends, for at most `EXIT_WAIT_S_MAX` seconds: Python ends a thread that
    returns from C++ while the interpreter is finalized, and C++ then aborts the process. Raises Unavailable during the
    exit.
    """
    calls = _native
    with calls.changed:
        if calls.ending:
            raise Unavailable("the process is ending")
        calls.running += 1
    try:
        yield
    finally:
        with calls.changed:
            calls.running -= 1
            calls.changed.notify_all()


def _end_native_calls() -> None:
    with _native.changed:
        _native.ending = True
        _native.changed.wait_for(lambda: not _native.running, EXIT_WAIT_S_MAX)


# Registered first, so it runs after the handlers of modules that import this one, which may still embed.
atexit.register(_end_native_calls)


@contextmanager
def importing() -> Iterator[None]:
    """A context for imports that begin on a thread of this package.

    A fork of the process waits until they end: a child that is forked in between could never import the module, because
    the thread that holds its lock does not exist there.
    """
    with _import_lock:
        yield


def _before_fork() -> None:
    _import_lock.acquire(timeout=FORK_WAIT_S_MAX)


def _after_fork() -> None:
    with suppress(RuntimeError):  # it was not acquired in time
        _import_lock.release()


def _after_fork_in_child() -> None:
    global _import_lock, _native
    _import_lock, _native = threading.RLock(), _NativeCalls()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork_in_child)


class DeferredCalls:
    """Calls that wait until somebody needs their results, made in their order. Safe for any thread, and for a fork."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def add(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Add a call, to be made in the context of the caller."""
        self._calls.append(partial(copy_context().run, partial(call, *args, **kwargs)))

    def make_in_turn(self, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Make a call after those that wait, if any do."""
        if self._calls:
            self.add(call, *args, **kwargs)
        else:
            call(*args, **kwargs)

    def make(self) -> None:
        """Make all calls, or wait until another thread has made them. A call must not end in this method again."""
        while self._calls:
            with importing():
                if self._calls:
                    try:
                        self._calls[0]()
                    finally:
                        self._calls.popleft()


class HookGap:
    """The time since the last hook. What a process imports and does at its start waits for a gap between its hooks."""

    def __init__(self) -> None:
        self.called_at = 0.0
        self._awaited = threading.Event()

    def called(self) -> None:
        """Note that a hook is called."""
        self.called_at = time.monotonic()

    def hurry(self) -> None:
        """End all waits: somebody waits for the work."""
        self._awaited.set()

    def wait(self, gap_s: float) -> None:
        """Wait until no hook has come for `gap_s` seconds, for at most `GAP_WAIT_S_MAX`, or somebody waits."""
        until = time.monotonic() + GAP_WAIT_S_MAX
        while (left_s := min(until, self.called_at + gap_s) - time.monotonic()) > 0:
            if self._awaited.wait(left_s):
                return

    def give_way(self, gap_s: float, most_s: float, hurried: Callable[[], bool]) -> None:
        """Wait while hooks come less than `gap_s` seconds apart, for at most `most_s` seconds, or until `hurried`.

        A batch computes for tens of milliseconds. A hook that needs the interpreter meanwhile waits 5 ms for it after
        each of its system calls.
        """
        until = time.monotonic() + most_s
        while not hurried() and (now := time.monotonic()) < until and now < self.called_at + gap_s:
            time.sleep(gap_s)


class BackgroundExecutor:
    """Runs calls on up to `threads_max` threads, which start when needed and end when idle. Safe for any thread."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        # Not a SimpleQueue: its `get` can outlast the timeout when two threads wait.
        self._ready = threading.Condition(threading.Lock())
        self._calls: deque[Callable[[], None]] = deque()
        self._threads = self._running = 0

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call soon; returns the future of its result or exception.

        The exception is Unavailable when no thread runs and none can be started, as at the exit of the process.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call(*args, **kwargs))
                except BaseException as error:  # noqa: BLE001 - raised where the result is asked for
                    future.set_exception(error)

        with self._ready:
            self._calls.append(run)
            try:
                self._start_thread()
            except RuntimeError as error:
                log.warning("no further thread can be started for background work: %s", error)
                if not self._threads:
                    self._calls.pop()
                    future.set_exception(Unavailable(f"no thread can be started: {error}"))
            self._ready.notify()
        return future

    def _start_thread(self) -> None:
        """Start a thread if the calls need one more. Raises RuntimeError when it cannot be started."""
        if self._threads < min(self._threads_max, self._running + len(self._calls)):
            name = f"{self._name}-{self._threads + 1}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
            self._threads += 1

    def _work(self) -> None:
        while True:
            with self._ready:
                if not self._ready.wait_for(lambda: self._calls, IDLE_S_MAX):
                    self._threads -= 1
                    return
                self._running += 1
                run = self._calls.popleft()
            run()
            del run  # an idle thread keeps nothing of its last call
            with self._ready:
                self._running -= 1
