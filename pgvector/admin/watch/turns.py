"""The turns that the host recorded and that this memory should have: whether they are stored or wait in a spool."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...files import Marks, mark_name
from ...hosts import state_db
from ...hosts.environment import scrubber
from ...hosts.transcript import exchanges
from ...mirror.home import Home
from ...outbox.inspection import waiting_sessions
from ...session import off_record
from ...session.capture import kept
from ...session.conversation import READ_ONLY_CONTEXTS
from ...session.home_context import OFF_RECORD_MAX
from ...settings import Settings
from ...store import statistics
from ...store.connection.database import Connection
from ...text.cleaning import clean
from ...text.theme_names import DEFAULT_THEME

SESSIONS_MAX = 50
ROWS_MAX = 2000
# A turn whose text was changed on its way is known by its session and time.
NEAR = timedelta(minutes=5)
# Sessions of the host's own jobs, which have no memory.
JOBS = READ_ONLY_CONTEXTS | {"tool", "curator"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """A turn in the host's record that should be stored: its session, its end, and the hashes of its two texts."""

    session_id: str
    at: datetime
    keys: frozenset[bytes]


def expected(home: Home, settings: Settings, since: datetime, until: datetime, limit: int) -> list[Recorded]:
    """The newest turns of that time that are worth storing, newest first, at most `limit`. Raises OSError.

    What settings, off-the-record sessions and short texts keep out is not among them.
    """
    if settings.off_record or not settings.sync_turns or "primary" not in settings.write_contexts:
        return []
    marks = Marks(home.state / "off_record", OFF_RECORD_MAX, "").names()
    found: list[Recorded] = []
    for session_id, source in state_db.recent_sessions(home.path, since.timestamp(), SESSIONS_MAX):
        if source not in JOBS and not _is_off(session_id, marks, settings):
            messages = [m for m in state_db.messages(home.path, session_id, newest=True) if not m["taken_back"]]
            turns = _turns(session_id, messages, settings)
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


def _is_off(session_id: str, marks: frozenset[str], settings: Settings) -> bool:
    """Whether a session is marked as off the record; where several themes may share its id, in any that is known."""
    themes = {DEFAULT_THEME, *settings.allowed_themes, *settings.theme_aliases.values()}
    names = (session_id, *(f"{session_id}:{theme}" for theme in themes))
    return any(mark_name(name) in marks for name in names)


def _turns(session_id: str, messages: list[dict[str, Any]], settings: Settings) -> Iterator[Recorded]:
    """The turns of a session that are worth storing and were said on the record."""
    times: dict[tuple[str, str], float] = {}
    for turn in _split(messages):
        for pair in exchanges(turn):
            times[pair] = max(float(message["written"]) for message in turn)
    scrub = scrubber()
    for pair in off_record.on_record(exchanges(messages)):
        texts = kept(scrub(pair[0]), scrub(pair[1]), min_chars=settings.turn_min_chars)
        if pair[1] and any(texts) and pair in times:
            keys = frozenset(hashlib.sha256(clean(text).encode()).digest() for text in texts if text)
            yield Recorded(session_id, datetime.fromtimestamp(times[pair], UTC), keys)


def _split(messages: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The messages from each question to the next one."""
    turn: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "user" and turn:
            yield turn
            turn = []
        turn.append(message)
    if turn:
        yield turn
