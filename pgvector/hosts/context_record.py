"""Reads from the host's record what stands in the context of a session: its system prompt and its live messages.

The record is `state.db`, as for `state_db`. A host sends a message again as the model got it at first, with the
memories before the turn; the record keeps both texts. A compression in place marks all messages as compacted and adds
those that it keeps as copies: the first ones, a summary, and the last ones. One host gives the copies a new time.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from .state_db import connect, decoded, unreadable
from .transcript import SUMMARY

MESSAGES_MAX = 5000
# So many messages after a summary are looked for among those before the compression.
CARRIED_MAX = 4

_SESSION = "select * from sessions where id = ?"
_SHARED_PROMPT = "select prompt from system_prompts where hash = ?"
_SAME = "select count(*), min(id) from messages where session_id = ? and active = 1 and id <= ?"
_LIVE = """
    select id, role, content, api_content, timestamp from messages
    where session_id = ? and active = 1 and id > ? and role in ('user', 'assistant') order by id limit ?"""
_FIRST = "select min(id) from messages where session_id = ? and active = 0 and role = ? and content = ?"
_TURN_BEGAN = """
    select timestamp from messages where session_id = ? and id <= ? and role = 'user' order by id desc limit 1"""


class LiveMessage(NamedTuple):
    """A message in the context: its text, and the text that the model got where memories were added to it."""

    id: int
    role: str
    text: str
    sent: str
    at: float
    stored: Any


class Seen(NamedTuple):
    """What was read of a session: its prompt, and the size and first id of its live messages up to the id `last`.

    Turns of the session from `since` on are in the context; all of them when it is None.
    """

    prompt: str = ""
    size: int = 0
    first: int = 0
    last: int = 0
    since: datetime | None = None


class Reading(NamedTuple):
    """The messages that were added since `seen` was read before, or all when some were taken away (`afresh`).

    `seen` does not count the messages of a turn without an answer: the host may still change them.
    """

    seen: Seen
    afresh: bool
    messages: tuple[LiveMessage, ...]
    unanswered: tuple[LiveMessage, ...]


class ContextRecord:
    """The record of one home. Safe for any thread.

    It is kept open as long as this object lives: opening it takes longer than reading what is new.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / "state.db"
        self._lock = threading.Lock()
        self._open: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None

    def read(self, session_id: str, seen: Seen) -> Reading | None:
        """What a session has in its context since it was `seen`; None when the record does not say."""
        with self._lock:
            try:
                return _read(self._connection(), session_id, seen)
            except (OSError, sqlite3.Error) as error:
                unreadable(error)
                self._close()
                return None

    def _connection(self) -> sqlite3.Connection:
        status = self._path.stat()
        if self._open is None or self._file != (status.st_dev, status.st_ino):
            self._close()
            self._open, self._file = connect(self._path), (status.st_dev, status.st_ino)
        return self._open

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
        self._open = None


def _read(record: sqlite3.Connection, session_id: str, seen: Seen) -> Reading | None:
    prompt = _prompt(record, session_id)
    same = tuple(record.execute(_SAME, (session_id, seen.last)).fetchone())
    afresh = seen.size == 0 or same != (seen.size, seen.first)
    messages = _messages(record, session_id, 0 if afresh else seen.last)
    if len(messages) > MESSAGES_MAX:
        return None
    answered = max((place for place, message in enumerate(messages, 1) if message.role == "assistant"), default=0)
    since, settled = _since(record, session_id, messages) if afresh else (seen.since, True)
    last = messages[answered - 1].id if answered else 0 if afresh else seen.last
    size, first = record.execute(_SAME, (session_id, last)).fetchone()
    known = Seen(prompt, size if settled else 0, first or 0, last, since)
    return Reading(known, afresh, tuple(messages[:answered]), tuple(messages[answered:]))


def _prompt(record: sqlite3.Connection, session_id: str) -> str:
    """The system prompt of a session. One host keeps equal ones once, under their hash."""
    rows = record.execute(_SESSION, (session_id,))
    session = dict(zip((column[0] for column in rows.description), rows.fetchone() or (), strict=False))
    shared = session.get("system_prompt_hash")
    prompt = (record.execute(_SHARED_PROMPT, (shared,)).fetchone() or ("",))[0] if shared else None
    return str(prompt or session.get("system_prompt") or "")


def _messages(record: sqlite3.Connection, session_id: str, after: int) -> list[LiveMessage]:
    return [
        LiveMessage(number, role, decoded(content), sent or "", at if isinstance(at, int | float) else 0.0, content)
        for number, role, content, sent, at in record.execute(_LIVE, (session_id, after, MESSAGES_MAX + 1))
    ]


def _since(
    record: sqlite3.Connection, session_id: str, messages: Sequence[LiveMessage]
) -> tuple[datetime | None, bool]:
    """When the first turn began that is in the context after a summary; None without a summary, or in doubt.

    The other value is whether the next messages cannot tell more.
    """
    summary = max((place for place, message in enumerate(messages) if SUMMARY.match(message.text)), default=-1)
    carried = [message for message in messages[summary + 1 :] if message.text][:CARRIED_MAX]
    if summary < 0 or not carried:
        return None, summary < 0
    settled = any(message.role == "assistant" for message in carried)
    first, *others = [_first(record, session_id, message) for message in carried]
    if first is None:
        # All of them are new, or one was changed when it was kept.
        return None if any(others) else _moment(messages[summary].at), settled
    began = record.execute(_TURN_BEGAN, (session_id, first)).fetchone()
    return _moment(began[0]) if began else None, settled


def _first(record: sqlite3.Connection, session_id: str, message: LiveMessage) -> int | None:
    """The id of the first message before the compression with the text of this one; None for a new text.

    If it was said more than once, the copied message may be a later one. Then too many turns are left out, not too few.
    """
    (found,) = record.execute(_FIRST, (session_id, message.role, message.stored)).fetchone()
    return None if found is None else int(found)


def _moment(at: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        return None
