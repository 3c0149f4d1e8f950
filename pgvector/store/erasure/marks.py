"""Marks of what was erased: made by `erase`, and looked up when events are stored, so that it does not come back.

A mark is a keyed hash of a theme, of a session, or of a text. An event that was accepted before the erasure may come
from the spool of any home at any time: it is dropped, or stored without the erased text. A text is marked and looked up
as it is and with its secrets masked, because `mask_secrets` may have been changed in between.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

from psycopg.rows import DictRow

from ...errors import BadEvent
from ...model import Add, Delegated, Event, FactWritten, Remove, Replace, SessionEnded, TurnTaken, Update
from ...text.masks import masked
from ..connection.database import Connection
from ..connection.messages import Statement
from ..queries import QUERIES

MarkKind: TypeAlias = Literal["theme", "session", "entries", "turns", "facts"]
# Returns when something was erased, or None; of a kind, and with a text.
ErasedAt: TypeAlias = Callable[[MarkKind, str], datetime | None]
_SETTING = "erasure_key"
# The statement whose answer is for `secrets_in`.
SECRETS_ASKED: Statement = (QUERIES["read_setting"], {"name": _SETTING})
# Of the database, and of those whose archives were imported.
SECRETS_MAX = 16


@dataclass(frozen=True, slots=True)
class Summary:
    """What was erased of a theme, when last, and how many events were dropped since then."""

    theme: str
    whole: bool
    sessions: int
    texts: int
    at: datetime
    dropped: int
    dropped_at: datetime | None


def listed(connection: Connection, limit: int) -> list[Summary]:
    """The themes with marks, the last one erased first."""
    return [Summary(**row) for row in connection.execute(QUERIES["list_erasures"], {"limit": limit})]


def last(connection: Connection) -> datetime | None:
    """When something was erased last; None when nothing was."""
    row = connection.execute(QUERIES["last_erasure"]).fetchone()
    return row["at"] if row else None


def add(connection: Connection, marks: Iterable[tuple[str, MarkKind, str]]) -> None:
    """Mark (theme, kind, text) as erased until now, in the caller's transaction.

    Waits for the transactions of all agents that store events now; later ones know the marks.
    """
    connection.execute(QUERIES["lock_links"])
    own, *_ = _secrets(connection) or [_make_secret(connection)]
    _insert(connection, own, marks)


def secrets_of(connection: Connection) -> list[str]:
    """The secrets of the hashes, for an archive: the own one first, then those of archives that were imported."""
    return [secret.hex() for secret in _secrets(connection)]


def take_secrets(connection: Connection, found: Iterable[str]) -> None:
    """Know the marks of another database, too. Raises BadEvent for more than SECRETS_MAX other secrets."""
    for secret in found:
        connection.execute(QUERIES["add_erasure_key"], {"value": secret})
    if len(_secrets(connection)) > SECRETS_MAX:
        raise BadEvent(f"it has marks of what was erased with new secrets; a database knows {SECRETS_MAX} secrets")


def _insert(
    connection: Connection, secret: bytes, marks: Iterable[tuple[str, MarkKind, str]], at: datetime | None = None
) -> None:
    found = dict.fromkeys(
        (theme, _key(secret, kind, form), kind) for theme, kind, text in marks for form in _forms(kind, text)
    )
    if found:
        themes, keys, kinds = (list(column) for column in zip(*found, strict=True))
        connection.execute(QUERIES["add_erasures"], {"themes": themes, "keys": keys, "kinds": kinds, "at": at})


def remaining(connection: Connection, events: Sequence[Event]) -> Sequence[Event | None]:
    """The events without what was erased, and None where nothing is left."""
    known = _known(connection, events, _secrets(connection) if events else ())
    return [known.rest(event) for event in events] if known else events


def storable(connection: Connection, events: Sequence[Event], known_secrets: Sequence[bytes]) -> Sequence[Event | None]:
    """As `remaining`, for events that are stored in this transaction, which has run `person_links.sharing`.

    Those that are dropped or changed are counted.
    """
    known = _known(connection, events, known_secrets)
    if known is None:
        return events
    kept: list[Event | None] = []
    # A replay of a session, which comes later, has the turns of an erased theme, too.
    ended: dict[tuple[str, MarkKind, str], datetime] = {}
    for event in events:
        rest = known.rest(event)
        if isinstance(rest, SessionEnded) and any((rest.theme, *mark) in ended for mark in _texts(rest)):
            rest = None
        whole = known.at(event.theme, "theme", "")
        if isinstance(event, TurnTaken) and event.session_id and whole is not None and event.at <= whole:
            ended[event.theme, "session", event.session_id] = whole
        kept.append(rest)
    changed = [event for event, rest in zip(events, kept, strict=True) if rest is not event]
    dropped = Counter(known.cause(event) for event in changed)
    themes, keys = ([cause[part] for cause in dropped] for part in (0, 1))
    connection.execute(QUERIES["count_dropped"], {"themes": themes, "keys": keys, "events": list(dropped.values())})
    for mark, at in ended.items():
        _insert(connection, known.secrets[0], [mark], at)
    return kept


@dataclass(frozen=True, slots=True)
class _Known:
    """The marks that some events may have: when they were made, by theme and key; `anywhere` are those of entries."""

    secrets: Sequence[bytes]
    times: dict[tuple[str, bytes], datetime]
    anywhere: frozenset[bytes]

    def at(self, theme: str, kind: MarkKind, text: str) -> datetime | None:
        """When this was erased last, or None."""
        found = (self.times.get((theme, key)) for key in _keys(self.secrets, kind, text))
        return max((at for at in found if at is not None), default=None)

    def rest(self, event: Event) -> Event | None:
        """The event without what was erased. An entry of a file is known by its text in any theme, at any time."""
        if isinstance(event, Add) and event.from_file and self._in_any_theme(event.content):
            return None
        return without_erased(event, partial(self.at, event.theme))

    def _in_any_theme(self, entry: str) -> bool:
        return not self.anywhere.isdisjoint(_keys(self.secrets, "entries", entry))

    def cause(self, event: Event) -> tuple[str, bytes]:
        """The mark by which an event was changed."""
        causes = ((event.theme, key) for text in _texts(event) for key in _keys(self.secrets, *text))
        return next((cause for cause in causes if cause in self.times), (event.theme, b""))


def _known(connection: Connection, events: Sequence[Event], known: Sequence[bytes]) -> _Known | None:
    """The marks of these events that were made with the `known` secrets; None when there are none."""
    if not known:
        return None
    of_files = {event.content for event in events if isinstance(event, Add) and event.from_file}
    values = {
        "themes": list({event.theme for event in events}),
        "keys": list({key for event in events for text in _texts(event) for key in _keys(known, *text)}),
        "entries": [key for text in of_files for key in _keys(known, "entries", text)],
    }
    rows = connection.execute(QUERIES["find_erasures"], values).fetchall()
    anywhere = frozenset(row["key"] for row in rows if row["kind"] == "entries")
    return _Known(known, {(row["theme"], row["key"]): row["at"] for row in rows}, anywhere) if rows else None


def erased_entries(connection: Connection, texts: Iterable[str]) -> frozenset[str]:
    """Those of the texts that were erased as entries, in whichever theme."""
    known = _secrets(connection)
    keys = {key: text for text in texts for key in _keys(known, "entries", text)}
    values = {"themes": [], "keys": [], "entries": list(keys)}
    return frozenset(keys[row["key"]] for row in connection.execute(QUERIES["find_erasures"], values))


def without_erased(event: Event, erased_at: ErasedAt) -> Event | None:
    """The event without what was erased after it was accepted; None when nothing is left. Pure.

    A transcript has turns of any age: those that were erased are left out whenever it was accepted.
    """

    def erased(kind: MarkKind, text: str) -> bool:
        at = erased_at(kind, text)
        return at is not None and event.at <= at

    if erased("theme", "") or erased("session", event.session_id):
        return None
    match event:
        case SessionEnded():
            if any(erased_at("session", name) for name in (event.session_id, *event.ancestors)):
                return None
            turns = tuple(("" if erased_at("turns", user) else user, answer) for user, answer in event.turns)
            turns = tuple(turn for turn in turns if any(turn) and not (turn[1] and erased_at("turns", turn[1])))
            if turns == event.turns:
                return event
            return replace(event, turns=turns) if turns else None
        case TurnTaken():
            user, answer = (("" if erased("turns", text) else text) for text in (event.user, event.assistant))
            if (user, answer) == (event.user, event.assistant):
                return event
            return replace(event, user=user, assistant=answer) if user or answer else None
        case Delegated():
            gone = erased("session", event.child_session_id) or any(
                erased("turns", t) for t in (event.task, event.result)
            )
            return None if gone else event
        case Replace() if erased("entries", event.content):
            return Remove(
                id=event.id, theme=event.theme, home=event.home, session_id=event.session_id, at=event.at,
                metadata=event.metadata, target=event.target, previous=event.previous, old_text=event.old_text,
                surviving=event.surviving,
            )  # fmt: skip
        case Add() | Update():
            return None if erased("entries", event.content) else event
        case FactWritten():
            return None if erased("facts", f"{event.target}: {event.content}") else event
    return event


def _texts(event: Event) -> list[tuple[MarkKind, str]]:
    """What the marks of an event may be of."""
    found: list[tuple[MarkKind, str]] = [("theme", ""), ("session", event.session_id)]
    match event:
        case SessionEnded():
            found += [("session", name) for name in event.ancestors]
            found += [("turns", text) for turn in event.turns for text in turn]
        case TurnTaken():
            found += [("turns", event.user), ("turns", event.assistant)]
        case Delegated():
            found += [("session", event.child_session_id), ("turns", event.task), ("turns", event.result)]
        case Add() | Update() | Replace():
            found.append(("entries", event.content))
        case FactWritten():
            found.append(("facts", f"{event.target}: {event.content}"))
    return found


def secrets_in(found: Iterable[DictRow]) -> list[bytes]:
    """The secrets of the hashes; none before the first erasure."""
    return [bytes.fromhex(secret) for row in found for secret in row["value"].split(",")]


def _secrets(connection: Connection) -> list[bytes]:
    return secrets_in(connection.execute(*SECRETS_ASKED))


def _make_secret(connection: Connection) -> bytes:
    offer = {"name": _SETTING, "value": secrets.token_hex(32)}
    row = connection.execute(QUERIES["claim_setting"], offer).fetchone() or offer
    return bytes.fromhex(row["value"].split(",")[0])


def _keys(known: Iterable[bytes], kind: MarkKind, text: str) -> list[bytes]:
    forms = _forms(kind, text)
    return [_key(secret, kind, form) for secret in known for form in forms]


def _forms(kind: MarkKind, text: str) -> dict[str, None]:
    return dict.fromkeys((text,) if kind in ("theme", "session") else (text, masked(text)))


def _key(secret: bytes, kind: MarkKind, text: str) -> bytes:
    return hmac.digest(secret, f"{kind}\0{text}".encode("utf-8", "surrogatepass"), hashlib.sha256)
