"""The rows that recalls have read lately: what is recalled again is not fetched again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..model import Row
from ..store import retrieval
from ..store.connection.database import Connection
from ..store.queries import Kind
from .cache import Remembered
from .scan import Key, Version
from .selection import Read

# Metadata take some 25 bytes a character.
ROWS_REMEMBERED_MAX, ROW_CHARS_MAX, METADATA_CHARS_MAX = 1024, 4096, 512


class RowCache:
    """Rows by their keys and versions. Safe for any thread.

    A row that was changed has another version, and of one that is gone nobody tells the version any more.
    """

    def __init__(self) -> None:
        self._rows = Remembered[tuple[Kind, Key, Version], Read](ROWS_REMEMBERED_MAX)

    def of(
        self, connection: Connection, kind: Kind, version: Callable[[Key], Version | None], keys: Sequence[Key]
    ) -> dict[Key, Read]:
        """Those of the rows that were there when their versions were read. One without a version is fetched."""
        versions = {key: told for key in keys if (told := version(key)) is not None}
        found = {key: read for key, told in versions.items() if (read := self._rows.get((kind, key, told))) is not None}
        missing = [key for key in keys if key not in found]
        if missing:
            for key, row in retrieval.fetch(connection, kind, missing).items():
                found[key] = read = Read.of(row)
                # A row that was changed after its version was told is kept by one that nobody is told again.
                if key in versions and _is_short(row):
                    self._rows.put((kind, key, versions[key]), read)
        return found


def _is_short(row: Row) -> bool:
    metadata_chars = len(str(row.metadata)) if row.metadata else 0
    return len(row.content) + len(row.session_id) <= ROW_CHARS_MAX and metadata_chars <= METADATA_CHARS_MAX
