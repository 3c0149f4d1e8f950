"""The connection pool of a process, its transactions and their time limits."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.rows import DictRow, dict_row, tuple_row
from psycopg_pool import ConnectionPool

from pgvector import HalfVector

from ...errors import SettingsError
from ...model import Vector
from ...settings import Settings
from ..embedded import identity
from ..embedded.cluster import AGENT
from ..embedded.server import EmbeddedServer
from ..queries import QUERIES
from ..schema import migrations, row_security, verification
from ..schema.preflight import ENCODING, first_line
from ..schema.verification import APPLICATION, Origin
from .checked import checked, learn
from .driver_errors import wrap_connecting, wrap_errors
from .dsn import describe, renewed, unusable
from .fair_semaphore import FairSemaphore
from .held_vectors import HeldVectors
from .local_settings import set_local
from .server_timeline import ServerTimeline
from .socket_timeouts import TimedConnection

log = logging.getLogger("hermes.pgvector")

ANSWER_S_MAX = PREPARE_S_MAX = 10.0
_HELD_VECTORS = QUERIES["held_vectors"].encode()

Connection: TypeAlias = psycopg.Connection[DictRow]

# psycopg logs each failed attempt; the writer logs once that the database is away, and when it is back.
logging.getLogger("psycopg").setLevel(logging.ERROR)


class Database:
    """Postgres as one process uses it, or only reads it. Safe for any thread; opens no connection before the first use.

    Time limits, in seconds. The first two are those of the settings unless they are given:

    * `timeout_s`: to get a connection, of the pool or a new one.
    * `statement_timeout_s`: for each statement of a transaction, kept by the server. Then TooSlow is raised.
    * `within_s`: for everything on the connection, kept by this process.
    * `statement_timeout_s` + ANSWER_S_MAX: for one answer of the server, kept by this process, so that a server that
      stopped or was cut off blocks no thread. In a transaction it is also the server's
      `idle_in_transaction_session_timeout`: a process that stopped or was cut off keeps no locks.

    After the last two the connection is closed and DatabaseUnavailable is raised.
    """

    def __init__(self, settings: Settings, hermes_home: Path, key: str = "dsn", *, read_only: bool = False) -> None:
        """`key` is the setting of the server. Raises SettingsError when the settings name no usable database."""
        self._settings, self._begin = settings, b"begin read only" if read_only else b"begin"
        self._lock = threading.Lock()
        self._pool: ConnectionPool[TimedConnection] | None = None
        self._refusal = ""
        self.doubted = False
        """Whether a recall failed since the writer last used the database with success."""
        self.line = FairSemaphore(settings.pool_max)
        """The line for a connection of the pool. Recalls go to its end, everything else to its head."""
        self.held, self.timeline = HeldVectors(settings.heal_interval_s), ServerTimeline()
        if reason := unusable(settings):
            raise SettingsError(reason)
        dsn = str(getattr(settings, key).get_secret_value())
        self.home, self._key = hermes_home, key
        self.server = None if dsn else EmbeddedServer(hermes_home, settings.data_dir)
        self.dsn = self.server.agent_dsn if self.server else dsn
        """The connection string; it may contain a password."""

    @property
    def label(self) -> str:
        """Where the database is, without secrets."""
        return f"embedded server in {self.server.paths.data}" if self.server else describe(self.dsn)

    def prepare(self, dimensions: Callable[[], int]) -> verification.SchemaState:
        """Start and migrate the embedded server, or verify the schema of any other; cheap after its first success.

        `dimensions` is asked for the length of the vectors of a new schema. Raises DatabaseUnavailable or
        SchemaNotApplied, and what `dimensions` raises.
        """
        if self.server is not None:
            self.server.ensure_running()
        if self.state is None:
            if self.server is not None:
                length = dimensions() if migrations.is_new(self.server.dsn) else None
                migrations.migrate(self.server.dsn, runtime_role=AGENT, dimensions=length)
                identity.note(self.home / "pgvector", self.server.paths.data)
            return self.refresh()
        return self.state

    @property
    def state(self) -> verification.SchemaState | None:
        """What `prepare` found; None before its first success."""
        return self.held.state

    def refresh(self) -> verification.SchemaState:
        """Read `state` again. Raises DatabaseUnavailable or SchemaNotApplied."""
        with self._retried_connection() as connection:
            self.held.state = state = self.verify(connection)
            for flaw in row_security.flaws(connection) if state.row_security else ():
                log.warning("row security does not keep the themes apart: %s; see: hermes-pgvector doctor", flaw)
            self.timeline.look(connection)
        return state

    def verify(self, connection: Connection) -> verification.SchemaState:
        """Check the schema as `verification.verify` does; its error names the command for this kind of server."""
        return verification.verify(connection, "hermes-pgvector server start" if self.server else "")

    def claim_model(self, model: str) -> str:
        """The embedding model of the stored vectors. A database with none gets `model`, except from a mere reader."""
        if self.state is not None and self.state.embedding_model is not None and not self.held.outdated:
            return self.state.embedding_model
        held = self._claim_setting("embedding_model", model)
        if held and self.state is not None and self.state.embedding_model is None:
            self.held.state = replace(self.state, embedding_model=held)
        return held or model

    def claim_person_key(self, offer: str) -> str:
        """The key of persons' themes, set to `offer` if that is given and there is none. Empty for a mere reader."""
        return self._claim_setting("person_key", offer)

    def _retried_connection(self) -> AbstractContextManager[Connection]:
        """For what a process does at its start, and does again when it fails."""
        return self.connection(within_s=PREPARE_S_MAX, trusting=True)

    def _claim_setting(self, name: str, offer: str) -> str:
        with self._retried_connection() as connection:
            row = connection.execute(QUERIES["read_setting"], {"name": name}).fetchone()
            if row is None and offer:
                allowed = connection.execute(QUERIES["may_claim"]).fetchone()
                if not (allowed and allowed["may"]):
                    return ""
                row = connection.execute(QUERIES["claim_setting"], {"name": name, "value": offer}).fetchone()
        return str(row["value"]) if row else offer

    def connection(
        self, timeout_s: float | None = None, *, within_s: float = math.inf, trusting: bool = False
    ) -> AbstractContextManager[Connection]:
        """A connection of the pool in autocommit mode.

        With `trusting`, one that was just used is not asked whether it works: a round trip less, for callers that try
        again.

        Raises DatabaseUnavailable (try again), SchemaNotApplied (migrate) or BadEvent (the data is refused) in place of
        the driver's errors, also for statements in the block. A note tells why a connection could not be made.
        """
        answer_s = self._settings.statement_timeout_s + ANSWER_S_MAX
        return self._connection(timeout_s, within_s, answer_s, trusting=trusting)

    def transaction(
        self,
        timeout_s: float | None = None,
        statement_timeout_s: float | None = None,
        *,
        within_s: float = math.inf,
        admitted: bool = False,
        vectors: Origin | None = None,
        **local: str,
    ) -> AbstractContextManager[Connection]:
        """A transaction with `local` as its settings, of which `__` in a name is a dot. Raises as `connection` does.

        `admitted` is whether `line` has admitted the caller. `vectors` are compared or stored in it: ModelChanged is
        raised when those of the database are others. They cannot change before the transaction ends, because it has
        read the settings: `second_column.switch` locks them.
        """
        limit_s = self._settings.statement_timeout_s if statement_timeout_s is None else statement_timeout_s
        answer_s = limit_s + ANSWER_S_MAX
        limits = set_local(limit_s, {"idle_in_transaction_session_timeout": int(answer_s * 1000), **local})
        opening = b"; ".join((self._begin, *limits, *self.timeline.asked, _HELD_VECTORS))
        return self._connection(timeout_s, within_s, answer_s, opening, admitted=admitted, vectors=vectors)

    @contextmanager
    def occasional_connection(self, timeout_s: float) -> Iterator[Connection]:
        """A connection in autocommit mode for what a single thread does now and then, so that an idle pool empties.

        When the pool is full it is one of the pool. The time limit holds for all of it. Raises as `connection` does.
        """
        with self.line.admitted(timeout_s, first=True), self._room() as room:
            if not room:
                with self._connection(timeout_s, timeout_s, timeout_s, admitted=True) as pooled:
                    yield pooled
                return
            with wrap_connecting(lambda: self._refusal):
                connection = TimedConnection.connect(self.dsn, **self._connection_options())
                learn(connection)
            with wrap_errors(), connection.limited(timeout_s), connection:
                yield connection

    @contextmanager
    def _room(self) -> Iterator[bool]:
        """Keep the pool from growing to its full size, to leave room for a connection; False when it is full already.

        Otherwise it may grow meanwhile: it replaces dead connections and makes new ones at the same time.
        """
        pool, most = self._opened_pool(), self._settings.pool_max
        pool.resize(0, most - 1)
        try:
            full = self.pool_size() >= most
            if full:
                pool.resize(0, most)
            yield not full
        finally:
            pool.resize(0, most)

    @contextmanager
    def _connection(
        self,
        timeout_s: float | None,
        within_s: float,
        answer_s: float,
        opening: bytes = b"",
        *,
        admitted: bool = False,
        vectors: Origin | None = None,
        trusting: bool = False,
    ) -> Iterator[Connection]:
        """A connection on which `opening` has been run; ends a transaction with COMMIT or ROLLBACK.

        An `opening` ends with `held_vectors`, and may ask for the timeline before.
        """
        wait_s = self._settings.connect_timeout_s if timeout_s is None else timeout_s
        until = time.monotonic() + wait_s
        with nullcontext() if admitted else self.line.admitted(wait_s, first=True):
            deadline, pool = time.monotonic() + within_s, self._opened_pool()
            with wrap_connecting(lambda: self._refusal):
                connection, answers = checked(pool, until - time.monotonic(), opening, trusting=trusting)
            with wrap_errors():
                try:
                    with connection.limited(deadline - time.monotonic(), answer_s), connection:
                        if opening:
                            self.held.check(answers[-1], vectors)
                            self.timeline.note(*answers[:-1])
                        yield connection
                        self.timeline.end(connection)
                finally:
                    pool.putconn(connection)

    def close(self) -> None:
        """Close the pool; the next use opens it again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=2)

    def abandon(self) -> None:
        """Drop the pool in a forked child: its sockets belong to the parent."""
        self._lock, self._pool = threading.Lock(), None
        self.line = FairSemaphore(self._settings.pool_max)

    def pool_size(self) -> int:
        """The number of open connections of this process."""
        pool = self._pool
        return int(pool.get_stats().get("pool_size", 0)) if pool else 0

    def _note_connecting(self, failure: psycopg.OperationalError | None) -> None:
        self._refusal = first_line(failure) if failure else ""
        if failure and self.server is None:
            self.dsn = renewed(self.dsn, self.home, self._key)

    def _connection_options(self) -> dict[str, Any]:
        return {
            "autocommit": True,
            "row_factory": dict_row,
            "prepare_threshold": None,
            "client_encoding": ENCODING,
            "connect_timeout": max(2, int(self._settings.connect_timeout_s)),
            "application_name": APPLICATION,
            "report": self._note_connecting,
        }

    def _opened_pool(self) -> ConnectionPool[TimedConnection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    lambda: self.dsn,
                    kwargs=self._connection_options(),
                    connection_class=TimedConnection,
                    min_size=0,
                    max_size=self._settings.pool_max,
                    max_idle=self._settings.pool_idle_s,
                    reconnect_timeout=self._settings.connect_timeout_s,
                    num_workers=1,
                    configure=learn,
                    open=True,
                    name="hermes-pgvector",
                )
            return self._pool


def tuples(
    connection: Connection, statement: LiteralString, parameters: Mapping[str, Any], *, binary: bool = False
) -> list[tuple[Any, ...]]:
    """All rows of an answer as tuples, which cost less than rows with names when there are many."""
    with connection.cursor(row_factory=tuple_row, binary=binary) as cursor:
        return cursor.execute(statement, parameters).fetchall()


def half(vector: Vector | HalfVector | None) -> HalfVector | None:
    """A vector as a parameter, in half precision."""
    return vector if vector is None or isinstance(vector, HalfVector) else HalfVector(vector)
