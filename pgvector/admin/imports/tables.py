"""import --from hermes-memory-pgvector: the rows of the package of that name up to 1.0, from its database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...errors import BadArgument, DatabaseUnavailable, SettingsError, Unavailable
from ...store.archive import tables
from ...store.connection.dsn import parsed
from .. import refusal
from .rows import Rules

SOURCE_DSN = "HERMES_PGVECTOR_SOURCE_DSN"


def read(path: str, rules: Rules) -> Iterator[tuple[int, str, dict[str, Any]]]:  # noqa: ARG001
    """The rows of the database with this connection string; of that in HERMES_PGVECTOR_SOURCE_DSN for `-`.

    Raises BadArgument, Refused, and Unavailable with what to do about the source.
    """
    dsn, name = (os.environ.get(SOURCE_DSN, ""), SOURCE_DSN) if path == "-" else (path, "the DSN of the source")
    if not dsn:
        raise BadArgument(f"{SOURCE_DSN} is not set; set it to the connection string of the source")
    try:
        parsed(dsn, name)
    except SettingsError as error:
        raise BadArgument(str(error)) from None
    try:
        for number, kind, row in tables.rows(dsn):
            marks = {**row["metadata"], "imported_from": "hermes-memory-pgvector"}
            yield number, kind, {**row, "metadata": marks}
    except DatabaseUnavailable as error:
        to_do = refusal.remedy(str(error), name, f"~/.pgpass or {SOURCE_DSN}, and give - as the DSN")
        raise Unavailable(f"the source cannot be read: {error}; {to_do}") from None
