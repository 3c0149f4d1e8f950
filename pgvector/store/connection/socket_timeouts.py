"""Connections with time limits of their own, for a server that stopped or was cut off.

The server itself keeps `statement_timeout`, so that limit does not help then.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.rows import DictRow

RV = TypeVar("RV")


class TimedConnection(psycopg.Connection[DictRow]):
    """A connection that closes itself and raises OperationalError when its limits are exceeded.

    A pool hides why it cannot connect, so `connect` passes the error to `report`, or None after a success.
    `distributed` is whether the tables are distributed over the nodes of a cluster, `used_at` the monotonic time when
    it was used last.
    """

    # The monotonic time when it stops waiting, and the longest wait for one answer.
    _deadline = _answer_s = math.inf
    distributed = False
    used_at = -math.inf

    @classmethod
    def connect(  # type: ignore[override]  # the keywords of psycopg go through
        cls, conninfo: str = "", *, report: Callable[[psycopg.OperationalError | None], None], **kwargs: Any
    ) -> TimedConnection:
        """Connect as psycopg does, and report the result."""
        try:
            connection = super().connect(conninfo, **kwargs)
        except psycopg.OperationalError as error:
            # The driver leaves the socket of an attempt that timed out to the garbage collection: the frames hold it.
            traceback.clear_frames(error.__traceback__)
            report(error)
            raise
        report(None)
        return connection

    @contextmanager
    def limited(self, within_s: float = math.inf, answer_s: float = math.inf) -> Iterator[None]:
        """Limit how long this connection waits for the server in the block: in all, and for each answer."""
        self._deadline, self._answer_s = time.monotonic() + within_s, answer_s
        try:
            yield
        finally:
            self._deadline = self._answer_s = math.inf
            self.used_at = time.monotonic()

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait for an answer of the server."""
        deadline = min(self._deadline, time.monotonic() + self._answer_s)
        return super().wait(self._until(deadline, gen), *args, **kwargs)

    def _until(self, deadline: float, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            wanted = next(gen)
            while True:
                # The driver reports ten times a second that nothing has come.
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    # It must not be used again: the answer could still come.
                    self.pgconn.finish()
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result
