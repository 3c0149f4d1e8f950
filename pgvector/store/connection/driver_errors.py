"""Turns the errors of the driver into those of this package."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from ...errors import SERVER_DISK_FULL, BadEvent, DatabaseUnavailable, SchemaNotApplied, TooSlow
from ..schema.preflight import REFUSED, migrate_command, refused

_SCHEMA_MISSING = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.UndefinedFunction)
_NEVER_STORED = (
    psycopg.DataError,
    psycopg.IntegrityError,
    psycopg.errors.ProgramLimitExceeded,
    psycopg.errors.CardinalityViolation,
)
# The function of Postgres that refuses rows by a policy. Rights that are missing have the same code.
_OF_ROW_SECURITY = "ExecWithCheckOptions"
_TRY_AGAIN = (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout, PoolClosed, TooManyRequests)
NOT_GRANTED = "the grants of this login do not hold the theme; see: hermes-pgvector grants"


@contextmanager
def wrap_errors() -> Iterator[None]:
    """Replace psycopg's errors by ours in the block; no message contains a value of a row.

    SchemaNotApplied: an administrator must migrate. BadEvent: the data can never be stored. TooSlow: a statement was
    cancelled. DatabaseUnavailable: try again later.
    """
    try:
        yield
    except _SCHEMA_MISSING as error:
        raise SchemaNotApplied(
            f"the database lacks a part of the memory: {_object_of(error)}; run: {migrate_command()}"
        ) from None
    except psycopg.errors.InsufficientPrivilege as error:
        if error.diag.source_function == _OF_ROW_SECURITY:
            raise BadEvent(NOT_GRANTED) from None
        raise SchemaNotApplied(
            f"the role may not do this ({error.diag.message_primary}); run: {migrate_command()}"
        ) from None
    except _NEVER_STORED as error:
        raise BadEvent(f"Postgres refuses the data ({error.sqlstate} {type(error).__name__})") from None
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadEvent(f"a value cannot be sent to Postgres ({type(error).__name__})") from None
    except psycopg.errors.QueryCanceled as error:
        raise TooSlow(f"Postgres did not finish in time ({_reason(error)})") from None
    except psycopg.errors.LockNotAvailable:
        raise DatabaseUnavailable("a table is locked by another transaction") from None
    except psycopg.errors.DiskFull:
        raise DatabaseUnavailable(SERVER_DISK_FULL) from None
    except _TRY_AGAIN as error:
        raise DatabaseUnavailable(f"Postgres does not answer ({_reason(error)})") from None
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise DatabaseUnavailable(
            f"Postgres cannot do it now ({_reason(error)}): its transactions are read-only, as those of a standby"
        ) from None
    except psycopg.Error as error:
        # For example a corrupt index: the data is not the cause.
        raise DatabaseUnavailable(f"Postgres cannot do it now ({_reason(error)})") from None


@contextmanager
def wrap_connecting(failure: Callable[[], str]) -> Iterator[None]:
    """As `wrap_errors`, for a block that may make a connection.

    `failure` gives the driver's words for the last one that could not be made, and is empty after a success. They are
    a note, because a model may read the message.
    """
    try:
        with wrap_errors():
            yield
    except DatabaseUnavailable as error:
        if not (why := failure()):
            raise
        told = DatabaseUnavailable(REFUSED) if refused(why) and not isinstance(error, TooSlow) else error
        told.add_note(why)
        raise told from None


def _object_of(error: psycopg.Error) -> str:
    return error.diag.message_primary or "a table of ours"


def _reason(error: Exception) -> str:
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return f"{error.sqlstate} {type(error).__name__}"
    return type(error).__name__
