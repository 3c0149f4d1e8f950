"""Facts and their scopes: written, moved to cold and purged by events, listed.

The facts of a theme are changed by one transaction at a time, which has the lock of `lock`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from pgvector import HalfVector

from ..model import FactEvent, FactKind, FactsPurged, FactsTicked, FactWritten, Metadata
from ..settings import Settings
from ..text import tokenizer
from .connection.database import Connection
from .connection.messages import together
from .queries import QUERIES

Status: TypeAlias = Literal["active", "cold", "superseded", "archived"]
# After so many turns of a session without a fact, its scopes close; those that it has left for another one earlier.
SILENT_TURNS, OTHER_SCOPE_TURNS = 6, 3
SCOPES_MAX, PURGED_MAX = 100, 50_000


@dataclass(frozen=True, slots=True)
class Fact:
    """A row of facts; it is current while its status is active or cold. `superseded_by` is the id of a later fact."""

    theme: str
    id: int
    kind: FactKind
    target: str
    scope: str
    content: str
    status: Status
    superseded_by: int | None
    written_at: datetime
    changed_at: datetime
    used_at: datetime | None
    uses: int
    session_id: str
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class FactScope:
    """An open scope. `session_id` wrote to it last, and has had `silent` turns since then."""

    label: str
    session_id: str
    opened_at: datetime
    written_at: datetime
    silent: int


class Current(NamedTuple):
    """The hot facts of a theme, which are the active ones of open scopes, the characters that all active facts have in
    their notation, and the open scopes. Of facts and scopes the last written come first."""

    hot: tuple[Fact, ...]
    chars: int
    scopes: tuple[FactScope, ...]


@dataclass(frozen=True, slots=True)
class Pressure:
    """How many characters of active facts a theme has room for, and from which percentages on facts make room."""

    chars_max: int = 10_000
    merge_pct: int = 70
    closed_pct: int = 85
    unused_pct: int = 95
    idle_days: int = 3


PRESSURE = Pressure()


def pressure_of(settings: Settings) -> Pressure:
    """The pressure that the settings ask for."""
    return Pressure(
        settings.facts_chars_max,
        settings.facts_merge_pct,
        settings.facts_closed_pct,
        settings.facts_unused_pct,
        settings.facts_scope_idle_days,
    )


# Reading


def current(connection: Connection, theme: str, hot_max: int) -> Current:
    """What holds now in a theme, read in one round trip."""
    hot, room, scopes = together(
        connection,
        [
            (QUERIES["hot_facts"], {"theme": theme, "limit": hot_max}),
            (QUERIES["gauge_facts"], {"theme": theme}),
            (QUERIES["list_fact_scopes"], {"theme": theme, "limit": SCOPES_MAX}),
        ],
    )
    hot_facts = tuple(Fact(**row) for row in hot.rows)
    return Current(hot_facts, room.rows[0]["chars"], tuple(FactScope(**row) for row in scopes.rows))


def gauge(connection: Connection, theme: str) -> int:
    """How many characters the active facts of a theme have in their notation."""
    row = connection.execute(QUERIES["gauge_facts"], {"theme": theme}).fetchone() or {}
    return int(row["chars"])


def count_hot(connection: Connection, theme: str) -> int:
    """The number of active facts of open scopes."""
    row = connection.execute(QUERIES["count_hot_facts"], {"theme": theme}).fetchone() or {}
    return int(row["facts"])


def listed(
    connection: Connection,
    theme: str,
    scope: str | None,
    statuses: Sequence[Status],
    limit: int,
    before: int | None = None,
) -> list[Fact]:
    """The `limit` facts with the highest ids, highest first, of these statuses; with ids below `before` only.

    `scope` is a label, empty for the facts of no scope, None for all.
    """
    values = {"theme": theme, "scope": scope, "statuses": list(statuses), "limit": limit, "before": before}
    return [Fact(**row) for row in connection.execute(QUERIES["list_facts"], values)]


def of_event(connection: Connection, theme: str, event_id: str) -> Fact | None:
    """The fact that an event wrote or repeated last; None before the event is stored, and when it changed nothing."""
    row = connection.execute(QUERIES["fact_of_event"], {"theme": theme, "event": event_id}).fetchone()
    return Fact(**row) if row else None


def displaced(connection: Connection, theme: str, ids: Iterable[int], limit: int) -> list[Fact]:
    """The superseded facts in whose place those with these ids stand, at most `limit`, the last written first."""
    values = {"theme": theme, "ids": list(ids), "limit": limit}
    return [Fact(**row) for row in connection.execute(QUERIES["displaced_facts"], values)]


def purgeable(connection: Connection, theme: str, event: FactsPurged) -> int:
    """How many facts a purge deletes, but for its bound."""
    values = {**asdict(event), "theme": theme, "days": event.older_than_days or 0}
    return int((connection.execute(QUERIES["count_past_facts"], values).fetchone() or {})["facts"])


def outdated(connection: Connection, event: FactWritten) -> bool:
    """Whether a fact of no scope would go to the history, because a newer one says something else."""
    newest = connection.execute(QUERIES["newest_fact"], asdict(event)).fetchone()
    return newest is not None and newest["newer"] and (newest["kind"], newest["content"]) != (event.kind, event.content)


def is_applied(connection: Connection, theme: str, event_id: str) -> bool:
    """Whether an event is in the ledger: it then has had its effect, which may be none."""
    row = connection.execute(QUERIES["is_applied"], {"theme": theme, "event": event_id}).fetchone() or {}
    return bool(row["applied"])


def used(connection: Connection, theme: str, ids: Iterable[int]) -> None:
    """Note that these facts were used now: the longest unused ones become cold first."""
    connection.execute(QUERIES["use_facts"], {"theme": theme, "ids": list(ids)})


# Events


def lock(connection: Connection, themes: Iterable[str]) -> None:
    """Keep other transactions from changing facts of these themes, and from moving rows and importing turns.

    Call it before any lock of a home is taken, so that two processes cannot deadlock.
    """
    for theme in sorted(set(themes)):
        connection.execute(QUERIES["lock_facts"], {"theme": theme})


def apply(connection: Connection, event: FactEvent, vector: HalfVector | None) -> None:
    """Apply an event that the ledger does not have yet, in the caller's transaction."""
    event = replace(event, at=_not_ahead(connection, event))
    match event:
        case FactWritten():
            _write(connection, event, vector)
        case FactsTicked():
            _tick(connection, event)
        case FactsPurged():
            values = {**asdict(event), "days": event.older_than_days or 0, "limit": PURGED_MAX}
            connection.execute(QUERIES["purge_facts"], values)


def _not_ahead(connection: Connection, event: FactEvent) -> datetime:
    """The time of an event, at the latest now: a clock that is ahead must not hold back the facts of others."""
    at: datetime = (connection.execute(QUERIES["time_not_ahead"], {"at": event.at}).fetchone() or {})["at"]
    return at


def _write(connection: Connection, event: FactWritten, vector: HalfVector | None) -> None:
    """Store a fact in its scope, which a `done` closes."""
    # Writers without a session, as on the command line, have no work in common.
    scope = event.scope or (_scope_of_session(connection, event) if event.session_id else "")
    active = not scope or _open(connection, event, scope)
    _place(connection, event, {**asdict(event), "scope": scope, "status": "active" if active else "cold"}, vector)
    if event.kind == "done" and scope:
        _close(connection, event, [scope])


def _place(connection: Connection, event: FactWritten, values: dict[str, Any], vector: HalfVector | None) -> None:
    """Add a fact in the place of older ones, or to the history when a newer one is there; a repeat is noted."""
    newest = connection.execute(QUERIES["newest_fact"], values).fetchone()
    same = newest is not None and (newest["kind"], newest["content"]) == (event.kind, event.content)
    if newest is not None and newest["newer"]:
        if not same:
            _add(connection, values | {"status": "superseded", "superseded_by": newest["id"]}, None)
        return
    if newest is not None and same and newest["current"]:
        number = newest["id"]
        connection.execute(QUERIES["repeat_fact"], {**values, "fact": number})
        superseded = _supersede(connection, values)
    else:
        superseded = _supersede(connection, values)
        number = _add(connection, values | {"superseded_by": None}, vector)
    if superseded:
        connection.execute(QUERIES["link_superseded_facts"], {**values, "fact": number, "ids": superseded})


def _scope_of_session(connection: Connection, event: FactWritten | FactsTicked) -> str:
    """The scope that the session of an event wrote to last before it, open or not; empty without one."""
    row = connection.execute(QUERIES["scope_of_session"], asdict(event)).fetchone()
    return str(row["label"]) if row else ""


def _open(connection: Connection, event: FactWritten, scope: str) -> bool:
    """Open the scope of a fact, or note that its session wrote to it; False when it was closed then or later."""
    account = event.metadata.get("linked_account")
    metadata = json.dumps({"linked_account": account} if account else {})
    values = {**asdict(event), "scope": scope, "metadata": metadata, "seconds": str(event.at.timestamp())}
    return bool((connection.execute(QUERIES["open_fact_scope"], values).fetchone() or {})["open"])


def _supersede(connection: Connection, values: dict[str, Any]) -> list[int]:
    return [row["id"] for row in connection.execute(QUERIES["supersede_facts"], values)]


def _add(connection: Connection, values: dict[str, Any], vector: HalfVector | None) -> int:
    words = tokenizer.document(f"{values['target']}: {values['content']}")
    values = {**values, "embedding": vector, "words": words, "metadata": json.dumps(dict(values["metadata"]))}
    return int((connection.execute(QUERIES["add_fact"], values).fetchone() or {})["id"])


def _tick(connection: Connection, event: FactsTicked) -> None:
    """Count a turn of silence for the scopes of a session, and close those whose work has ended."""
    current = _scope_of_session(connection, event)
    silent = connection.execute(QUERIES["silence_fact_scopes"], asdict(event)).fetchall()
    ended = [
        row["label"]
        for row in silent
        if row["silent"] >= (SILENT_TURNS if row["label"] == current else OTHER_SCOPE_TURNS)
    ]
    _close(connection, event, [*ended, *([current] if current and event.closing else [])])


def _close(connection: Connection, event: FactWritten | FactsTicked, labels: list[str]) -> None:
    if labels:
        connection.execute(QUERIES["close_fact_scopes"], {**asdict(event), "labels": labels})


def relieve(connection: Connection, event: FactWritten | FactsTicked, pressure: Pressure) -> None:
    """Have facts of the theme of an event make room when its active facts have more characters than they should.

    Duplicates are merged, then facts of closed scopes become cold, then the longest unused ones. Scopes of sessions
    that were not heard of for `idle_days` are closed first.
    """
    event = replace(event, at=_not_ahead(connection, event))
    values = {**asdict(event), "days": pressure.idle_days, "room": pressure.chars_max * pressure.closed_pct // 100}
    _close(connection, event, [row["label"] for row in connection.execute(QUERIES["idle_fact_scopes"], values)])
    for percentage, statement in (
        (pressure.merge_pct, "merge_facts"),
        (pressure.closed_pct, "cool_facts_of_closed_scopes"),
        (pressure.unused_pct, "cool_unused_facts"),
    ):
        if gauge(connection, event.theme) * 100 < percentage * pressure.chars_max:
            return
        connection.execute(QUERIES[statement], values)
