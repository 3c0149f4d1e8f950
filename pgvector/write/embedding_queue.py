"""Texts on their way to the embedder: grouped into requests, two of which run at a time."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import NamedTuple

from ..background import BackgroundExecutor
from ..embedding.probe import Probe
from ..embedding.protocol import Embedder
from ..embedding.vectors import TextRefused
from ..errors import EmbedderFailed, EmbedderUnavailable, PgvectorError, Refused
from ..model import Vector
from ..settings import Settings
from .request_size import RequestSize, Sent

log = logging.getLogger("hermes.pgvector")

REQUESTS_MAX = 2
TIMEOUT_S_FIRST = 5.0
# HTTP clients give up a little before or after their time limit.
TIMED_OUT_SHARE = 0.9


class _Item(NamedTuple):
    embedder: Embedder
    text: str
    vector: Future[Vector]


class EmbeddingQueue:
    """Embeds texts in the order in which they are given. Safe for any thread.

    Requests grow and shrink as `RequestSize` says, to one text when one is not answered in time. The time limit of a
    request is four times that of the last one, or of the probe before it, but at least `TIMEOUT_S_FIRST` and at most
    `embed_timeout_s`.

    A request that fails fails all texts that wait. Then a short probe is sent before the next request, so that the
    return of the embedder is noticed soon. A text for which the embedder fails or which it refuses, while it answers
    the probe, fails alone. `wake` is called after each request.
    """

    def __init__(self, settings: Settings, wake: Callable[[], None]) -> None:
        self._settings, self._wake = settings, wake
        self._executor = BackgroundExecutor("hermes-pgvector-embed", REQUESTS_MAX)
        self._lock = Lock()
        self._waiting: deque[_Item] = deque()
        self._running = self._chars_running = 0
        self._size = RequestSize(settings.embed_timeout_s / 2)
        self._timeout_s = min(TIMEOUT_S_FIRST, settings.embed_timeout_s)
        self._failed = False
        self._probe = Probe(settings.embed_timeout_s)

    def submit(self, embedder: Embedder, texts: Sequence[str]) -> list[Future[Vector]]:
        """Embed the texts soon; returns the futures of their vectors, in order.

        Their exceptions are EmbedderUnavailable when a retry may help, and Refused when the embedder works and refuses
        the text.
        """
        items = [_Item(embedder, text, Future()) for text in texts]
        with self._lock:
            self._waiting.extend(items)
            workers = max(0, min(self._workers_max - self._running, len(texts)))
            self._running += workers
        for _ in range(workers):
            self._executor.submit(self._work).add_done_callback(self._ended)
        return [item.vector for item in items]

    @property
    def idle(self) -> bool:
        """Whether no text waits and no request runs."""
        return not self._waiting and not self._running

    @property
    def room(self) -> int:
        """How many characters may still be submitted so that the next requests are full; 0 or less when they are."""
        with self._lock:
            if len(self._waiting) >= REQUESTS_MAX * self._settings.embed_batch_max:
                return 0
            return REQUESTS_MAX * self._size.chars - sum(len(item.text) for item in self._waiting)

    @property
    def _workers_max(self) -> int:
        # One alone probes: a second probe would be refused while the first one runs, and double the time limit.
        return 1 if self._failed else REQUESTS_MAX

    def _work(self) -> None:
        while request := self._next_request():
            try:
                self._settle(request[0].embedder, request)
            except Exception as error:  # noqa: BLE001 - logged, and the texts fail
                problem = f"the embedder failed with an unexpected {type(error).__name__}"
                log.warning("%s", problem)
                left = [item for item in request if not item.vector.done()]
                self._fail_all(left, EmbedderUnavailable(problem))
            self._wake()

    def _ended(self, worker: Future[None]) -> None:
        """Note a worker that could not start."""
        error = worker.exception()
        if error is not None:
            with self._lock:
                self._running -= 1
            self._fail_all([], EmbedderUnavailable(str(error)))

    def _fail_all(self, request: Sequence[_Item], error: Exception) -> None:
        """Fail a request and what waits: it would fail, too."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        _fail([*request, *waiting], error)

    def _next_request(self) -> list[_Item]:
        """The next texts, for one embedder: as many as a request may have; empty when the worker has to end."""
        request: list[_Item] = []
        with self._lock:
            most = self._settings.embed_batch_max if self._running <= self._workers_max else 0
            chars = 0
            while self._waiting and chars < self._size.chars and len(request) < most:
                if request and self._waiting[0].embedder is not request[0].embedder:
                    break
                request.append(self._waiting.popleft())
                chars += len(request[-1].text)
            if not request:
                self._running -= 1
        return request

    def _settle(self, embedder: Embedder, request: list[_Item]) -> None:
        """Send a request and settle its futures. One that is refused as a whole is tried in halves."""
        try:
            vectors = self._embed(embedder, [item.text for item in request])
        except (Refused, ValueError, EmbedderFailed) as error:
            if len(request) == 1:
                self._refuse(embedder, request[0], error)
            elif isinstance(error, TextRefused):
                self._refuse(embedder, request[error.index], error)
                self._settle(embedder, request[: error.index] + request[error.index + 1 :])
            else:
                half = len(request) // 2
                self._settle(embedder, request[:half])
                self._settle(embedder, request[half:])
        except PgvectorError as error:
            self._failed = True
            self._fail_all(request, error)
        else:
            for item, vector in zip(request, vectors, strict=True):
                item.vector.set_result(vector)

    def _embed(self, embedder: Embedder, texts: list[str]) -> list[Vector]:
        if self._failed:
            self._ask(embedder)
        chars = sum(map(len, texts))
        with self._lock:
            self._chars_running += chars
            sent, limit_s = Sent(chars, len(texts), self._chars_running), self._timeout_s
        started = time.monotonic()
        try:
            vectors = embedder.embed_passages(texts, limit_s)
        except EmbedderUnavailable:
            self._failed_after(sent, time.monotonic() - started, limit_s)
            raise
        finally:
            with self._lock:
                self._chars_running -= chars
        self._answered_after(sent, time.monotonic() - started)
        return vectors

    def _ask(self, embedder: Embedder) -> None:
        """Send a probe. Raises EmbedderUnavailable, also when it is refused: then no text is at fault."""
        started = time.monotonic()
        try:
            self._probe.ask(embedder)
        except EmbedderUnavailable:
            self._failed = True
            raise
        except PgvectorError as error:
            self._failed = True
            raise EmbedderUnavailable(str(error)) from None
        with self._lock:
            limit_s = max(self._timeout_s, 4 * (time.monotonic() - started))
            self._timeout_s = min(self._settings.embed_timeout_s, limit_s)

    def _answered_after(self, sent: Sent, seconds: float) -> None:
        """Choose the size and the time limit of the next request."""
        with self._lock:
            self._failed = False
            self._size.answered(sent, seconds)
            self._timeout_s = min(self._settings.embed_timeout_s, max(TIMEOUT_S_FIRST, 4 * seconds))

    def _failed_after(self, sent: Sent, seconds: float, limit_s: float) -> None:
        """Choose the size and the time limit of the next request after one without an answer."""
        timed_out = seconds >= TIMED_OUT_SHARE * limit_s
        with self._lock:
            self._failed = True
            self._size.unanswered(sent, seconds, timed_out=timed_out)
            if timed_out and sent.texts == 1:
                self._timeout_s = min(self._settings.embed_timeout_s, max(self._timeout_s, 2 * limit_s))

    def _refuse(self, embedder: Embedder, item: _Item, error: Exception) -> None:
        """Fail a text that was refused, unless the embedder takes it now: it may work since a moment ago only."""
        cause = self._cause(embedder, error)
        if isinstance(cause, Refused):
            try:
                item.vector.set_result(self._embed(embedder, [item.text])[0])
            except (Refused, ValueError, EmbedderFailed):
                pass
            except PgvectorError as unavailable:
                cause = unavailable
            else:
                return
        _fail([item], cause)

    def _cause(self, embedder: Embedder, error: Exception) -> Exception:
        """Why a text has no vector: it is refused, unless the embedder refuses the probe as well."""
        try:
            self._ask(embedder)
        except EmbedderUnavailable as unavailable:
            return unavailable
        return error if isinstance(error, Refused) else TextRefused(str(error))


def _fail(items: Sequence[_Item], error: Exception) -> None:
    for item in items:
        item.vector.set_exception(error)
