"""The turns that the host recorded and that this memory should have: whether they are stored or wait in a spool."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from ...hosts import state_db
from ...mirror.home import Home
from ...outbox.inspection import waiting_sessions
from ...session.capture import Capture, Verdict
from ...session.off_record_marks import OffRecordMarks
from ...settings import Settings
from ...store import statistics
from ...store.connection.database import Connection
from ...text.cleaning import clean
from ..host_record import ANCESTORS_MAX, JOBS, goes_on_off, identity_of, is_known, is_off, other_profile, turns_of

SESSIONS_MAX = 50
ROWS_MAX = 2000
# A turn whose text was changed on its way is known by its session and time.
NEAR = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A turn in the host's record that should be stored: its session, its end, and the hashes of its two texts."""

    session_id: str
    at: datetime
    keys: frozenset[bytes]


def expected(home: Home, settings: Settings, since: datetime, until: datetime, limit: int) -> list[Recorded]:
    """The newest turns of that time that are to be stored, newest first, at most `limit`. Raises OSError.

    What settings, rules of `keep`, off-the-record sessions and short texts keep out is not among them.
    """
    if settings.off_record:
        return []
    marks = OffRecordMarks(home.path, home.state).names()
    capture = Capture(settings)
    found: list[Recorded] = []
    for row in state_db.recent_sessions(home.path, since.timestamp(), SESSIONS_MAX):
        session_id, identity = str(row["id"]), identity_of(row, settings)
        if identity.platform in JOBS or is_off(session_id, identity, marks, settings):
            continue
        if other_profile(row, home.path, home.path):
            # It has settings and a database of its own.
            continue
        source = identity.source(identity.only_author)
        if settings.keep and not is_known(source):
            # The rules may depend on where it was said.
            continue
        messages = [m for m in state_db.messages(home.path, session_id, newest=True) if not m["taken_back"]]
        if goes_on_off(home.path, session_id, identity, marks, settings):
            continue
        before = state_db.ancestors(home.path, session_id, ANCESTORS_MAX) if marks else ()
        turns = _turns((session_id, *before), messages, partial(capture.turn, source=source), marks)
        found += [turn for turn in turns if since <= turn.at <= until]
    return sorted(found, key=lambda turn: turn.at, reverse=True)[:limit]


def spooled(home: Home, turns: Iterable[Recorded]) -> set[Recorded]:
    """Those of the turns that wait in a spool."""
    newest = waiting_sessions(home.spool)
    return {turn for turn in turns if turn.session_id in newest and newest[turn.session_id] >= turn.at - NEAR}


def stored(connection: Connection, turns: Iterable[Recorded]) -> set[Recorded]:
    """Those of the turns that are in the database."""
    wanted = list(turns)
    if not wanted:
        return set()
    since = min(turn.at for turn in wanted) - timedelta(hours=1)
    sessions = sorted({turn.session_id for turn in wanted})
    rows = statistics.newest_of_sessions(connection, sessions, since, ROWS_MAX)
    texts = {(session, key) for session, key, _ in rows}
    newest: dict[str, datetime] = {}
    for session, _, at in rows:
        newest[session] = max(at, newest.get(session, at))
    return {turn for turn in wanted if _is_known(turn, texts, newest)}


def _is_known(turn: Recorded, texts: set[tuple[str, bytes]], newest: Mapping[str, datetime]) -> bool:
    if any((turn.session_id, key) in texts for key in turn.keys):
        return True
    return turn.session_id in newest and newest[turn.session_id] >= turn.at - NEAR


def _turns(
    sessions: tuple[str, ...], messages: list[dict[str, Any]], judge: Callable[..., Verdict], marks: frozenset[str]
) -> Iterator[Recorded]:
    """The turns of the first of these sessions, before which the others were, that are to be stored."""
    for at, (_, answer), texts in turns_of(messages, judge, sessions=sessions, marks=marks):
        if answer:
            keys = frozenset(hashlib.sha256(clean(text).encode()).digest() for text in texts if text)
            yield Recorded(sessions[0], at, keys)
