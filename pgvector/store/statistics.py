"""Figures about the database for operators: server and role, rows in all, rows of each theme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from .connection.database import Connection
from .connection.distributed import by_theme
from .queries import QUERIES
from .schema import rights


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server and the connected role: `missing` are rights on our tables that it lacks, `excess` those that agents
    do not need.

    `pgvector_version` is empty when the database lacks the extension, `pgvector_available` when the server lacks it.
    `hidden` are the schemas of the memory and of pgvector that are not on the search path, and `search_path_source` is
    where that path is set, as `pg_settings.source` says it.
    """

    server_version: str
    pgvector_version: str
    pgvector_available: str
    database_bytes: int
    database: str
    encoding: str
    role: str
    superuser: bool
    owner: bool
    missing: tuple[str, ...]
    excess: tuple[str, ...]
    search_path: str
    search_path_source: str
    hidden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """Rows of the whole database; only word search finds those `*_without_vector`, only vector search those of all
    kinds `without_words`. Of the facts, those that are recalled.
    """

    entries: int
    entries_without_vector: int
    turns: int
    turns_without_vector: int
    facts: int
    facts_without_vector: int
    without_words: int
    themes: int

    @property
    def without_vector(self) -> int:
        """Rows of all kinds without a vector."""
        return self.entries_without_vector + self.turns_without_vector + self.facts_without_vector


@dataclass(frozen=True, slots=True)
class ThemeTotals:
    """Rows of one theme, and the times of the oldest and of the newest."""

    theme: str
    entries: int
    turns: int
    facts: int
    without_vector: int
    first: datetime | None
    latest: datetime | None


@dataclass(frozen=True, slots=True)
class ThemeSample:
    """Estimates for one theme by its newest rows: mean bytes of each kind, without indexes, and homes of entries."""

    theme: str
    entry_bytes: float
    turn_bytes: float
    fact_bytes: float
    homes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows that were added in some time, by what `key` names: a theme, or the number of a day from 1 on."""

    key: str | int
    entries: int
    turns: int


@dataclass(frozen=True, slots=True)
class SourceTotals:
    """New rows of a source; `home` is empty for turns, and for entries that are in the file of no home."""

    home: str
    source: str
    entries: int
    turns: int


def server_info(connection: Connection) -> ServerInfo:
    """What the server tells of itself and of the role; works without the schema, too."""
    row = connection.execute(QUERIES["server_info"]).fetchone() or {}
    return ServerInfo(**row | {"hidden": tuple(row["hidden"])}, **rights.held(connection)._asdict())


def totals(connection: Connection) -> Totals:
    """Count all rows. Reads indexes only, and still takes seconds for millions of rows."""
    row = connection.execute(QUERIES["row_totals"]).fetchone() or {}
    return Totals(**row)


def themes(connection: Connection, limit: int) -> list[ThemeTotals]:
    """The `limit` largest themes, largest first."""
    return [ThemeTotals(**row) for row in connection.execute(QUERIES["largest_themes"], {"limit": limit})]


def sample(connection: Connection, themes: Sequence[str], rows: int, entries: int) -> dict[str, ThemeSample]:
    """Estimates for these themes: sizes from the newest `rows` of each kind, homes from the newest `entries`."""
    asked = {"sample": rows, "homes_of": entries}
    return {
        row["theme"]: ThemeSample(**row)
        for parameters in by_theme(connection, {"themes": list(themes)})
        for row in connection.execute(QUERIES["sample_themes"], {**parameters, **asked})
    }


def growth_by_day(connection: Connection, days: Sequence[datetime], theme: str = "") -> list[Growth]:
    """Rows that were added in each day, of one theme or all. `days` are the times at which the days begin, in order."""
    found = connection.execute(QUERIES["growth_by_day"], {"days": list(days), "theme": theme})
    return [Growth(row["day"], row["entries"], row["turns"]) for row in found]


def growth_by_theme(connection: Connection, themes: Sequence[str], since: datetime) -> dict[str, Growth]:
    """Rows that were added to these themes since a time; a theme without new rows is left out."""
    found = connection.execute(QUERIES["growth_by_theme"], {"themes": list(themes), "since": since})
    return {row["theme"]: Growth(row["theme"], row["entries"], row["turns"]) for row in found}


def growth_by_source(connection: Connection, since: datetime, theme: str, rows: int, limit: int) -> list[SourceTotals]:
    """The homes and sources of the rows since a time, the newest `rows` of each kind; the `limit` largest."""
    parameters = {"since": since, "theme": theme, "rows": rows, "limit": limit}
    return [SourceTotals(**row) for row in connection.execute(QUERIES["growth_by_source"], parameters)]


def newest_of_sessions(
    connection: Connection, sessions: Sequence[str], since: datetime, limit: int, until: datetime | None = None
) -> list[tuple[str, bytes, datetime]]:
    """The newest rows of these sessions in a time: session, hash of the text, and time."""
    values = {"sessions": list(sessions), "since": since, "until": until, "limit": limit}
    rows = connection.execute(QUERIES["newest_of_sessions"], values)
    return [(row["session_id"], bytes(row["key"]), row["at"]) for row in rows]


def themes_of_sessions(connection: Connection, sessions: Sequence[str]) -> dict[str, set[str]]:
    """The themes that have turns of each of these sessions: of clients, several may have the same id."""
    found: dict[str, set[str]] = {}
    for row in connection.execute(QUERIES["themes_of_sessions"], {"sessions": list(sessions)}):
        found.setdefault(row["session_id"], set()).add(row["theme"])
    return found
