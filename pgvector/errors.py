"""Every error this package raises on purpose, split by what the caller does next.

PgvectorError
├── SettingsError        fix a setting
├── SchemaNotApplied     run the migrations
├── Unavailable          try again later
│   ├── DatabaseUnavailable
│   │   └── TooSlow      or ask for less
│   └── EmbedderUnavailable
└── Refused              give up: trying again cannot help
    ├── BadEvent         the event can never be stored; it is set aside
    ├── BadArgument      a tool or a command was called wrongly
    └── EmbedderMismatch the endpoint answers, but not with what was asked for
"""

from __future__ import annotations


class PgvectorError(Exception):
    """Base of all errors of this package.

    Its message may be shown to a model. A note on it (`add_note`) is for operators alone: it may name hosts and roles.
    """


def explained(error: PgvectorError) -> str:
    """The message with its notes, in one line for an operator."""
    return ": ".join((str(error), *getattr(error, "__notes__", ())))


class SettingsError(PgvectorError):
    """A setting is wrong or missing; the message names the key, the value and what is allowed."""


class SchemaNotApplied(PgvectorError):
    """The database lacks our schema or an older one is there; the message names the command to run."""


class Unavailable(PgvectorError):
    """A service does not answer now; trying again later may help."""


class DatabaseUnavailable(Unavailable):
    """Postgres cannot be reached, or dropped the connection."""


class TooSlow(DatabaseUnavailable):
    """Postgres gave up a statement at its time limit: it was too much for it, or waited for somebody's lock."""


class EmbedderUnavailable(Unavailable):
    """The embedding endpoint cannot be reached, is too slow, or answered with a temporary error."""


class Refused(PgvectorError):
    """The request itself is wrong; trying again cannot help."""


class BadEvent(Refused):
    """An event that Postgres can never take."""


class BadArgument(Refused):
    """A tool argument or a command-line argument is wrong; the message names it."""


class EmbedderMismatch(Refused):
    """The embedder's answer does not fit: wrong count, wrong dimension, or numbers that are not finite."""
