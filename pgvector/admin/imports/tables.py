"""import --from hermes-memory-pgvector: the rows of the package of that name up to 1.0, from its database."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ...store.archive import tables
from .rows import Rules

SOURCE_DSN = "HERMES_PGVECTOR_SOURCE_DSN"


def read(path: str, rules: Rules) -> Iterator[tuple[int, str, dict[str, Any]]]:  # noqa: ARG001
    """The rows of the database with this connection string; of that in HERMES_PGVECTOR_SOURCE_DSN for `-`."""
    for number, kind, row in tables.rows(os.environ.get(SOURCE_DSN, "") if path == "-" else path):
        marks = {**row["metadata"], "imported_from": "hermes-memory-pgvector"}
        yield number, kind, {**row, "metadata": marks}
