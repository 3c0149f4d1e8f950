"""Reads the rows of a database as the lines of an archive, from one snapshot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ...model import now
from ...version import __version__
from ..connection.database import Connection
from ..connection.distributed import by_theme
from ..erasure import marks
from ..queries import QUERIES, Kind
from ..schema.verification import SchemaState
from .lines import KINDS, Writer

ROWS_AT_ONCE = 200
EMBEDDED: Mapping[str, Kind] = {"entry": "entries", "turn": "turns", "fact": "facts"}


def origin(connection: Connection) -> str:
    """What identifies a database among others."""
    row = connection.execute(QUERIES["archive_origin"]).fetchone()
    made: datetime | None = row["made_at"] if row else None
    return made.isoformat() if made else ""


def manifest(
    connection: Connection, verify: Callable[[Connection], SchemaState], themes: Sequence[str] | None, *, vectors: bool
) -> dict[str, Any]:
    """What an archive says about itself: the model and dimensions of its vectors, the numbers of its rows.

    It has the secrets of the marks of what was erased: whoever reads it can test a guess, as with the database.
    The counts lock all tables against a change of the model, until the end of the transaction.
    """
    rows = connection.execute(QUERIES["export_counts"], {"themes": themes})
    counts = Counter({row["kind"]: row["rows"] for row in rows})
    state = verify(connection)
    return {
        "exported_at": now().isoformat(), "release": __version__, "schema": state.version,
        "database": origin(connection), "model": state.embedding_model, "dimensions": state.dimensions,
        "vectors": vectors and bool(state.embedding_model), "themes": themes,
        "rows": {kind: counts[kind] for kind in KINDS},
        "erasure_keys": marks.secrets_of(connection) if counts["erasure"] else [],
    }  # fmt: skip


def lines(connection: Connection, manifest: Mapping[str, Any], writer: Writer) -> Iterator[bytes]:
    """The lines of an archive with this manifest.

    The connection is in a transaction with one snapshot. Rows come through a cursor of the server, a few at a time.
    """
    yield writer.manifest(manifest)
    for kind in KINDS:
        with connection.cursor(name="export") as cursor:
            cursor.execute(QUERIES[f"export_{kind}"], {"themes": manifest["themes"]})
            while rows := cursor.fetchmany(ROWS_AT_ONCE):
                vectors = _vectors(connection, kind, rows) if manifest["vectors"] else {}
                for row in rows:
                    yield writer.row(kind, row["row"], vectors.get((row["theme"], row["id"]), ()))
    yield writer.end()


def _vectors(
    connection: Connection, kind: str, rows: Sequence[Mapping[str, Any]]
) -> dict[tuple[str, int], Sequence[str]]:
    if kind not in EMBEDDED:
        return {}
    columns = {"themes": [row["theme"] for row in rows], "ids": [row["id"] for row in rows]}
    return {
        (row["theme"], row["id"]): row["vectors"]
        for parameters in by_theme(connection, columns)
        for row in connection.execute(QUERIES[f"coded_vectors_{EMBEDDED[kind]}"], parameters)
    }
