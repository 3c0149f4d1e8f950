"""The turns that the host recorded and that this memory should have: whether they are stored or wait in a spool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from ...files import Marks, mark_name
from ...hosts import state_db
from ...hosts.environment import scrubber
from ...hosts.transcript import exchanges
from ...mirror.home import Home
from ...outbox.inspection import waiting_sessions
from ...session import off_record
from ...session.capture import Capture, Verdict
from ...session.conversation import READ_ONLY_CONTEXTS
from ...session.home_context import OFF_RECORD_MAX
from ...session.project import project_of
from ...session.themes import Identity, templated_theme
from ...settings import Settings
from ...store import statistics
from ...store.connection.database import Connection
from ...text.cleaning import clean
from ...text.keep import TERMINALS
from ...text.theme_names import DEFAULT_THEME

SESSIONS_MAX = 50
ROWS_MAX = 2000
# A turn whose text was changed on its way is known by its session and time.
NEAR = timedelta(minutes=5)
# Sessions of the host's own jobs, which have no memory.
JOBS = READ_ONLY_CONTEXTS | {"tool", "curator"}
# Platforms whose sessions have no type of chat.
PLACES = TERMINALS | {"api_server"}


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
    marks = Marks(home.state / "off_record", OFF_RECORD_MAX, "").names()
    capture = Capture(settings)
    found: list[Recorded] = []
    for row in state_db.recent_sessions(home.path, since.timestamp(), SESSIONS_MAX):
        session_id, identity = str(row["id"]), _identity(row, settings)
        if identity.platform in JOBS or _is_off(session_id, identity, marks, settings):
            continue
        source = identity.source(identity.only_author)
        if settings.keep and not (source.chat_type or source.platform in PLACES):
            # The rules may depend on where it was said, and the record does not tell.
            continue
        messages = [m for m in state_db.messages(home.path, session_id, newest=True) if not m["taken_back"]]
        turns = _turns(session_id, messages, partial(capture.turn, source=source))
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


def _identity(row: Mapping[str, Any], settings: Settings) -> Identity:
    """The identity of a session as its agent had it, as far as the host recorded it."""
    try:
        alternative = json.loads(row.get("origin_json") or "{}").get("user_id_alt")
    except (AttributeError, TypeError, ValueError):
        alternative = ""
    identity = Identity.of(
        {
            **row,
            "platform": row.get("source"),
            "gateway_session_key": row.get("session_key"),
            "agent_identity": row.get("profile_name"),
            "user_id_alt": alternative,
        }
    )
    folder = str(row.get("cwd") or "")
    if folder and "{project}" in settings.theme_template:
        return replace(identity, project=project_of(Path(folder)))
    return identity


def _is_off(session_id: str, identity: Identity, marks: frozenset[str], settings: Settings) -> bool:
    """Whether a session is marked as off the record; where several themes may share its id, in any that is known."""
    own = templated_theme(identity, settings)
    themes = {own, DEFAULT_THEME, *settings.allowed_themes, *settings.theme_aliases.values()}
    names = (session_id, *(f"{session_id}:{theme}" for theme in themes))
    return any(mark_name(name) in marks for name in names)


def _turns(session_id: str, messages: list[dict[str, Any]], judge: Callable[[str, str], Verdict]) -> Iterator[Recorded]:
    """The turns of a session that are to be stored and were said on the record."""
    times: dict[tuple[str, str], float] = {}
    for turn in _split(messages):
        for pair in exchanges(turn):
            times[pair] = max(float(message["written"]) for message in turn)
    scrub = scrubber()
    for pair in off_record.on_record(exchanges(messages)):
        texts = judge(scrub(pair[0]), scrub(pair[1])).sides
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
