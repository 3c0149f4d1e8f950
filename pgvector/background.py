"""Background work on a few daemon threads, which never delay the exit of the process."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

from .errors import Unavailable

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S_MAX = 10.0
HOLD_S_MAX = 1e-4
PAUSE_S = 1e-5
HURRY_S = 2e-3
STAND_BACK_S_MAX = 2e-2


class BackgroundExecutor:
    """Runs calls on at most `threads_max` threads, started when needed and gone when idle. Safe for any thread."""

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        # The timeout of a SimpleQueue can pass without an end when two threads wait.
        self._ready = threading.Condition(threading.Lock())
        self._calls: deque[Callable[[], None]] = deque()
        self._threads = self._running = 0

    def submit(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call soon; its result or its exception is in the future.

        The exception is Unavailable when no thread is there and none can be started, as when the process ends.
        """
        future: Future[T] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                _settle(future, call, args, kwargs)

        with self._ready:
            self._calls.append(run)
            error = self._start_thread()
            if error is not None and not self._threads:
                self._calls.pop()
                future.set_exception(Unavailable(f"no thread can be started: {error}"))
            self._ready.notify()
        return future

    def _start_thread(self) -> Exception | None:
        """Start a thread if the calls need one more, or tell why that cannot be."""
        if self._threads >= min(self._threads_max, self._running + len(self._calls)):
            return None
        name = f"{self._name}-{self._threads + 1}"
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            log.warning("no thread more can be started for work in the background: %s", error)
            return error
        self._threads += 1
        return None

    def _work(self) -> None:
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Run the next call; False when none has come for long, and the thread goes."""
        with self._ready:
            if not self._ready.wait_for(lambda: self._calls, IDLE_S_MAX):
                self._threads -= 1
                return False
            self._running += 1
            run = self._calls.popleft()
        run()
        with self._ready:
            self._running -= 1
        return True


class _Hurry:
    until = 0.0


def hurry() -> None:
    """A hook begins: for a moment, which the next hook prolongs, work that is `unhurried` stands back."""
    _Hurry.until = time.perf_counter() + HURRY_S


def unhurried(items: Iterable[T]) -> Iterator[T]:
    """The items, with a short sleep after every `HOLD_S_MAX` seconds of work on them, but after the last; while hooks
    come one after the other, with a sleep of up to `STAND_BACK_S_MAX` seconds before each.

    Without it a thread that computes keeps the interpreter for 5 ms at a time. A hook that wants it back waits, and
    does so at each call of the kernel, for which it gave the interpreter away.
    """
    due = time.perf_counter() + HOLD_S_MAX
    for item in items:
        moment = time.perf_counter()
        if moment >= due or moment < _Hurry.until:
            _stand_back(moment)
            due = time.perf_counter() + HOLD_S_MAX
        yield item


def _stand_back(since: float) -> None:
    pause_s = max(PAUSE_S, _Hurry.until - since)
    while pause_s > 0:
        time.sleep(pause_s)
        pause_s = min(_Hurry.until, since + STAND_BACK_S_MAX) - time.perf_counter()


def _settle(future: Future[T], call: Callable[..., T], args: Any, kwargs: Any) -> None:
    try:
        result = call(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
        future.set_exception(error)
    else:
        future.set_result(result)
