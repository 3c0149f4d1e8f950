"""A connection of the pool that works: dead ones are replaced, and the types of vectors and tables are known."""

from __future__ import annotations

import time

import psycopg
from psycopg.rows import DictRow
from psycopg.types import TypeInfo
from psycopg_pool import ConnectionPool

from pgvector.psycopg.halfvec import register_halfvec_info

from ..queries import QUERIES
from .socket_timeouts import TimedConnection

CHECK_S_MAX = 1.0
UNCHECKED_S_MAX = 0.5
TYPE_S_MAX = 10.0


def checked(
    pool: ConnectionPool[TimedConnection], timeout_s: float, opening: bytes, *, trusting: bool = False
) -> tuple[TimedConnection, list[DictRow]]:
    """A connection of the pool and the rows that it answered to `opening`, the first of each statement.

    Dead connections are replaced within `timeout_s` seconds.

    The opening is the check, because a separate one would cost a round trip. With `trusting`, an empty one is left out
    on a connection that was used in the last UNCHECKED_S_MAX seconds.
    """
    deadline = time.monotonic() + timeout_s
    # All connections of the pool may be dead, but not the one after them, unless the server is.
    attempts_left = pool.max_size + 1
    while True:
        connection = pool.getconn(timeout=deadline - time.monotonic())
        try:
            answers: list[DictRow] = []
            recent = time.monotonic() <= connection.used_at + UNCHECKED_S_MAX
            if opening or not (trusting and recent):
                # At most a third of the time, so that there is enough for a new connection when this one is dead.
                with connection.limited(min(CHECK_S_MAX, (deadline - time.monotonic()) / 3)):
                    answers = _answers(connection.execute(opening))
            # A connection that was made before the migrations does not know the type yet.
            if connection.adapters.types.get("halfvec") is None:
                learn(connection)
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


def learn(connection: TimedConnection) -> None:
    """Have the driver know the type of vectors, and the connection the kind of tables; nothing before the migrations.

    One round trip. `pgvector.psycopg.register_vector` takes twelve, which a recall over a slow network would wait for.
    """
    with connection.limited(TYPE_S_MAX):
        found = connection.execute(QUERIES["halfvec_type"]).fetchone()
    if found:
        connection.distributed = found.pop("distributed")
        register_halfvec_info(connection, TypeInfo(**found))
