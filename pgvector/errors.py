"""The errors that this package raises, split by what the caller does next, and whether a part of it works."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from datetime import datetime

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
SERVER_DISK_FULL = "the disk of the database server is full"


class PgvectorError(Exception):
    """Base of all errors of this package.

    A model may read the message. Notes (`add_note`) are for operators only: they may name hosts and roles.
    """


def explained(error: Exception) -> str:
    """The message with its notes, in one line for an operator."""
    return ": ".join((str(error), *getattr(error, "__notes__", ())))


def cure(error: Exception, otherwise: str) -> str:
    """What to do about a file that cannot be used: what is said `otherwise`, unless it is another user's, or the disk
    is full.
    """
    if isinstance(error, PermissionError):
        return "run as the user who owns it"
    return "free some space" if getattr(error, "errno", None) in DISK_FULL else otherwise


class SettingsError(PgvectorError):
    """A setting is wrong or missing; the message names the key, the value and what is allowed."""


class SchemaNotApplied(PgvectorError):
    """The schema is missing or older than this package needs; the message names the command to run."""


class ClientTooOld(SchemaNotApplied):
    """The database serves newer releases than this one; the message says to upgrade it. Events wait in the spool."""


class Unavailable(PgvectorError):
    """A service does not answer now; a later retry may succeed."""


class DatabaseUnavailable(Unavailable):
    """Postgres cannot be reached, or closed the connection."""


class StandbyBehind(Unavailable):
    """A standby lacks what was stored last; the message says why, and is empty when it will have it in a moment."""


class TooSlow(DatabaseUnavailable):
    """A statement reached its time limit: it does too much, or waited for a lock. Ask for less, or later."""


class ModelChanged(Unavailable):
    """The database holds vectors of another model by now than the given ones are of."""


class EmbedderUnavailable(Unavailable):
    """The embedding endpoint cannot be reached, is too slow, or returned a temporary error."""


class EmbedderLimited(EmbedderUnavailable):
    """The endpoint takes no more requests for now. `wait_s` is how many seconds to wait, 0 when that is not known."""

    def __init__(self, message: str, wait_s: float = 0.0) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class EmbedderFailed(EmbedderUnavailable):
    """The endpoint answered an internal error: it does not work, or one of the texts makes it fail."""


class CheckpointFailed(PgvectorError):
    """What is about to be compressed may be lost with the machine; the host keeps it, and may try again later."""


class Refused(PgvectorError):
    """The request is wrong; a retry cannot help."""


class BadEvent(Refused):
    """An event that Postgres can never store; it becomes a dead letter."""


class BadArgument(Refused):
    """A tool argument or a command-line argument is wrong; the message names it."""


class EmbedderMismatch(Refused):
    """The embedder's answer does not fit: wrong count, wrong dimension, or numbers that are not finite."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether a part of the memory works now: neither `problem` nor `works` means that this is not known yet.

    A model may read the problem. `since` is when it began, as far as this process knows.
    """

    problem: str = ""
    since: datetime | None = None
    works: bool = False
