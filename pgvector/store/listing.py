"""Rows as an operator looks at them: listed by filters, one with its details and its neighbours, and sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from ..model import Metadata
from .connection.database import Connection
from .queries import QUERIES, Kind, containing

ID_MIN, ID_MAX = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows to list; an empty field matches every row.

    `number` is the id of one row. `target` and `tags` select entries, `role` selects turns. `text` is a part of the
    text, in any case. Rows from `since` on and before `until` match, by the time at which they were said first.
    """

    theme: str = ""
    number: int | None = None
    session: str = ""
    role: str = ""
    target: str = ""
    source: str = ""
    tags: tuple[str, ...] = ()
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A row of either kind; what only the other kind has is empty.

    `source` is the origin of an entry as the tools show it, or how a turn came here: `conversation`, `transcript` (a
    replay of the host), `delegation`, or the name of an import.
    """

    kind: Kind
    theme: str
    id: int
    at: datetime
    content: str
    source: str
    target: str
    home: str
    tags: Sequence[str]
    expires_at: datetime | None
    role: str
    session_id: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class Details:
    """What else is known of a row. `updated_at` is None for turns, which are never changed.

    `replaces` are the ids that an entry had before its corrections, `pieces` is how many further vectors a text
    has, of its chunks or of its sentences.
    """

    embedded: bool
    worded: bool
    pieces: int
    updated_at: datetime | None
    replaces: Sequence[int]
    parent_session_id: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A turn beside a row in its session."""

    id: int
    role: str
    at: datetime
    content: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a theme: the number of its rows, and the times of the first and the last."""

    session_id: str
    turns: int
    first: datetime
    latest: datetime


def listed(
    connection: Connection, kind: Kind, wanted: Filter, limit: int, *, before: datetime | None = None, below: int = 0
) -> list[Listed]:
    """The newest `limit` rows of a kind that match; with `before`, older ones, and as old ones with ids `below`."""
    parameters = {
        **asdict(wanted), "text": containing(wanted.text), "tags": list(wanted.tags) or None,
        "before": before, "before_id": below, "limit": limit,
    }  # fmt: skip
    return [Listed(kind=kind, **row) for row in connection.execute(QUERIES[f"filter_{kind}"], parameters)]


def sessions(connection: Connection, theme: str, limit: int, offset: int) -> list[Session]:
    """Up to `limit` sessions of a theme after the first `offset`, the one with the newest turn first."""
    parameters = {"theme": theme, "limit": limit, "offset": offset}
    return [Session(**row) for row in connection.execute(QUERIES["list_sessions"], parameters)]


def themes_with_turn(connection: Connection, number: int) -> list[str]:
    """The themes that have a turn with this id: one, unless rows were copied by hand."""
    return [row["theme"] for row in connection.execute(QUERIES["themes_with_turn"], {"id": number})]


def details(connection: Connection, kind: Kind, theme: str, number: int) -> Details | None:
    """The details of a row; None when it is gone."""
    row = connection.execute(QUERIES[f"details_of_{kind}"], {"theme": theme, "id": number}).fetchone()
    return Details(**row) if row else None


def neighbours(connection: Connection, theme: str, session: str, at: datetime, turns: int) -> list[Neighbour]:
    """Up to `turns` turns of a session before a time, and as many from it on, in their order."""
    parameters = {"theme": theme, "session": session, "at": at, "turns": turns}
    return [Neighbour(**row) for row in connection.execute(QUERIES["turns_near"], parameters)]
