"""Connections that give up on a server that does not answer: stopped, cut off, or lost without a word.

`statement_timeout` is kept by the server, and so helps only while there is one.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import DictRow

RV = TypeVar("RV")


class _Patience(threading.local):
    """What this thread waits for: nothing after `deadline` (monotonic), and no single answer longer than `answer_s`."""

    deadline = math.inf
    answer_s = math.inf


_patience = _Patience()


@contextmanager
def patience(within_s: float = math.inf, answer_s: float = math.inf) -> Iterator[None]:
    """Bound the waiting of this thread in the block: in all, and for each answer."""
    before = _patience.deadline, _patience.answer_s
    _patience.deadline, _patience.answer_s = time.monotonic() + within_s, answer_s
    try:
        yield
    finally:
        _patience.deadline, _patience.answer_s = before


def patience_left_s() -> float:
    """How many seconds this thread will still wait; infinite without a bound."""
    return _patience.deadline - time.monotonic()


class TimedConnection(psycopg.Connection[DictRow]):
    """A connection that closes itself, with an OperationalError, when the patience of its thread is at an end.

    A pool hides why it cannot connect, so `connect` tells it to `tell`: the error, or None when it went well.
    `keeps_plans` is whether it may keep plans of statements from one transaction to the next.
    """

    keeps_plans = False

    @classmethod
    def connect(  # type: ignore[override]  # the keywords of psycopg go through
        cls, conninfo: str = "", *, tell: Callable[[psycopg.OperationalError | None], None], **kwargs: Any
    ) -> TimedConnection:
        """Connect as psycopg does, and tell how it went."""
        try:
            connection = super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            tell(error)
            raise
        tell(None)
        return connection

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for an answer of the server."""
        deadline = min(_patience.deadline, time.monotonic() + _patience.answer_s)
        return super().wait(self._until(deadline, gen), *args, **kwargs)

    def _until(self, deadline: float, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            wanted = next(gen)
            while True:
                # The driver reports ten times a second that nothing has come.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    # Nothing else may be asked on it: the answer could still come.
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result
