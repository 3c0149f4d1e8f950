"""A connection of the pool that works: dead ones are replaced, and the types of pgvector are known."""

from __future__ import annotations

import logging
import time

import psycopg
from psycopg.rows import DictRow
from psycopg_pool import ConnectionPool

from pgvector.psycopg import register_vector

from .socket_timeouts import TimedConnection

log = logging.getLogger("hermes.pgvector")

CHECK_S_MAX = 1.0
TYPES_S_MAX = 10.0


def checked(
    pool: ConnectionPool[TimedConnection], timeout_s: float, opening: bytes
) -> tuple[TimedConnection, list[DictRow]]:
    """A connection of the pool and the rows that it answered to `opening`, the first of each statement.

    Dead connections are replaced within `timeout_s` seconds.

    The opening is the check, because a separate one would cost a round trip.
    """
    deadline = time.monotonic() + timeout_s
    # All connections of the pool may be dead, but not the one after them, unless the server is.
    attempts_left = pool.max_size + 1
    while True:
        connection = pool.getconn(timeout=deadline - time.monotonic())
        try:
            # At most a third of the time, so that there is enough for a new connection when this one is dead.
            with connection.limited(min(CHECK_S_MAX, (deadline - time.monotonic()) / 3)):
                answers = _answers(connection.execute(opening))
            # A connection that was made before the migrations does not know the types yet.
            if connection.adapters.types.get("halfvec") is None:
                register_types(connection)
        except psycopg.OperationalError:
            connection.close()
            pool.putconn(connection)
            attempts_left -= 1
            if attempts_left == 0:
                raise
        except BaseException:
            pool.putconn(connection)
            raise
        else:
            return connection, answers


def _answers(opened: psycopg.Cursor[DictRow]) -> list[DictRow]:
    rows = []
    while True:
        if opened.description and (row := opened.fetchone()):
            rows.append(row)
        if not opened.nextset():
            return rows


def register_types(connection: TimedConnection) -> None:
    """Have the driver know the types of pgvector; nothing happens before the migrations."""
    try:
        with connection.limited(TYPES_S_MAX):
            register_vector(connection)
    except psycopg.ProgrammingError as error:
        # The types are unknown before the migrations; `verify` reports that with the command to run.
        log.debug("vector types are not registered: %s", type(error).__name__)
